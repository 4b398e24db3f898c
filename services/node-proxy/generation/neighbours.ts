import type { ProxyPresence } from '../../../lib/bus/catalog.ts';
import type { Presence } from '../../../lib/bus/contract.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { PRESENCE_AGE_MS, PRESENCE_INTERVAL_MS } from '../limits.ts';

/** What a process needs to know of the other proxies of its node. */
export interface NeighboursDependencies {
  readonly clock: Clock;
  readonly log: Logger;
  readonly presence: Presence<ProxyPresence>;
  /** This process, and no other. */
  readonly member: string;
  /** What it says of itself at this moment. */
  readonly self: () => ProxyPresence;
}

/** Tells the other proxies of the node of this one, and knows of them what they said last. */
export class Neighbours {
  readonly #deps: NeighboursDependencies;
  readonly #timer: Timer;
  #others: readonly ProxyPresence[] | null = null;
  #round: Promise<void> = Promise.resolve();
  #busy = false;
  /** Something changed while a round was under way. */
  #again = false;
  #closed = false;

  constructor(deps: NeighboursDependencies) {
    this.#deps = deps;
    this.#timer = deps.clock.every(PRESENCE_INTERVAL_MS, () => this.announce());
    this.announce();
  }

  /** The others as they were when Redis last answered; null before that. */
  get others(): readonly ProxyPresence[] | null {
    return this.#others;
  }

  /** Says now what changed. */
  announce(): void {
    this.#again = true;
    if (this.#busy || this.#closed) return;
    this.#busy = true;
    this.#round = this.#exchangeAll();
  }

  /** Says goodbye. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#timer.cancel();
    await this.#round;
    const { log, member, presence } = this.#deps;
    await presence.leave(member).catch((error: unknown) => {
      // It is taken for gone when its last word is old enough.
      log.debug({ error: errorText(error) }, 'presence.not-left');
    });
  }

  async #exchangeAll(): Promise<void> {
    while (this.#again && !this.#closed) {
      this.#again = false;
      await this.#exchange();
    }
    this.#busy = false;
  }

  async #exchange(): Promise<void> {
    const { log, member, presence, self } = this.#deps;
    try {
      await presence.announce(member, self());
      const members = await presence.members(PRESENCE_AGE_MS);
      this.#others = [...members].filter(([name]) => name !== member).map(([, other]) => other);
    } catch (error) {
      // The next round is a second away, and what is known stays known.
      log.debug({ error: errorText(error) }, 'presence.not-exchanged');
    }
  }
}
