/** Follows the changes of an engine's containers. */
import { Backoff } from '../clock/backoff.ts';
import { pause } from '../clock/clock.ts';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { EngineView } from './engine-view.ts';

/** Events of one burst are handled together. */
const GATHER_MS = 50;
/** Interval between full looks, in case an event was missed. */
const RESYNC_MS = 5_000;
const EVENTS_BACKOFF = { baseMs: 100, maxMs: 5_000 } as const;

/** Dependencies of a {@link ContainerWatch}. */
export interface ContainerWatchDeps {
  readonly engine: Pick<EngineView, 'changes'>;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'warn'>;
  /** Looks at the containers; called once at a time. It must not reject. */
  readonly look: () => Promise<void>;
}

/** Has the containers looked at after each change, and every 5 s. */
export class ContainerWatch {
  readonly #deps: ContainerWatchDeps;
  readonly #abort = new AbortController();
  #events: Promise<void> = Promise.resolve();
  #turn: Promise<void> = Promise.resolve();
  #soon: Timer | null = null;
  #resync: Timer | null = null;

  constructor(deps: ContainerWatchDeps) {
    this.#deps = deps;
  }

  /** Begins with a first look. */
  start(): void {
    this.#events = this.#followEvents();
    this.#resync = this.#deps.clock.every(RESYNC_MS, () => this.look());
    this.look();
  }

  /** Stops, and resolves when no look is under way. */
  async stop(): Promise<void> {
    this.#abort.abort(new Error('stopped'));
    this.#soon?.cancel();
    this.#resync?.cancel();
    await Promise.all([this.#events, this.#turn]);
  }

  /** Has the containers looked at soon. */
  look(): void {
    if (this.#soon !== null || this.#abort.signal.aborted) return;
    this.#soon = this.#deps.clock.after(GATHER_MS, () => {
      this.#soon = null;
      this.#turn = this.#turn.then(() => this.#deps.look());
    });
  }

  async #followEvents(): Promise<void> {
    const { engine, clock, log } = this.#deps;
    const { signal } = this.#abort;
    const backoff = new Backoff(EVENTS_BACKOFF);
    while (!signal.aborted) {
      try {
        for await (const _ of engine.changes(signal)) {
          backoff.reset();
          this.look();
        }
      } catch (error) {
        log.warn({ error: errorText(error) }, 'containers.events-broken');
      }
      this.look();
      await pause(clock, backoff.next(), signal);
    }
  }
}
