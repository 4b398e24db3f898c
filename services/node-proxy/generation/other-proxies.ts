import type { ProxyPresence } from '../../../lib/bus/catalog.ts';
import type { Presence } from '../../../lib/bus/contract.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { PRESENCE_AGE_MS, PRESENCE_INTERVAL_MS } from '../limits.ts';

/** Collaborators of {@link OtherProxies}. */
export interface OtherProxiesDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly presence: Presence<ProxyPresence>;
  /** Names this process. */
  readonly member: string;
  /** Returns what this process announces now. */
  readonly self: () => ProxyPresence;
}

/**
 * The presence of a dedicated proxy: it announces nothing and sees nobody. It shares no pod with the proxies of its node, and
 * those must not wait for certificates that it will never have.
 */
export const NOBODY: Presence<ProxyPresence> = {
  announce: () => Promise.resolve(),
  leave: () => Promise.resolve(),
  members: () => Promise.resolve(new Map()),
};

/** Announces this proxy to the other proxies of the node, and keeps what each of them announced last. */
export class OtherProxies {
  readonly #deps: OtherProxiesDeps;
  readonly #timer: Timer;
  #others: readonly ProxyPresence[] | null = null;
  #round: Promise<void> = Promise.resolve();
  /** True when a round is due that has not begun. */
  #queued = false;
  #closed = false;

  constructor(deps: OtherProxiesDeps) {
    this.#deps = deps;
    this.#timer = deps.clock.every(PRESENCE_INTERVAL_MS, () => this.announce());
    this.announce();
  }

  /** The other proxies as of the last answer of Redis; null before the first. */
  get others(): readonly ProxyPresence[] | null {
    return this.#others;
  }

  /** Announces a change now. */
  announce(): void {
    if (this.#queued) return;
    this.#queued = true;
    this.#round = this.#round.then(() => this.#exchange());
  }

  /** Announces that this proxy leaves. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#timer.cancel();
    await this.#round;
    const { log, member, presence } = this.#deps;
    await presence.leave(member).catch((error: unknown) => {
      // The others see this proxy go when its last announcement is too old.
      log.debug({ error: errorText(error) }, 'presence.leave-failed');
    });
  }

  async #exchange(): Promise<void> {
    this.#queued = false;
    if (this.#closed) return;
    const { log, member, presence, self } = this.#deps;
    try {
      // One round trip. The announcement goes first: of two that start together, at least one sees the other.
      const [, members] = await Promise.all([
        presence.announce(member, self()),
        presence.members(PRESENCE_AGE_MS),
      ]);
      this.#others = [...members].filter(([name]) => name !== member).map(([, other]) => other);
    } catch (error) {
      // The next round comes within a second; until then the last answer counts.
      log.debug({ error: errorText(error) }, 'presence.exchange-failed');
    }
  }
}
