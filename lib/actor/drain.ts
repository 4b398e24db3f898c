import type { Deadline } from './actor.ts';
import type { Clock } from '../clock/clock.ts';

/** A deadline on `clock`; {@link force} brings it forward. */
export class DrainDeadline implements Deadline {
  readonly #clock: Clock;
  readonly #endsAt: number;
  readonly #controller = new AbortController();
  readonly #timer: { cancel(): void };

  constructor(clock: Clock, durationMs: number) {
    this.#clock = clock;
    this.#endsAt = clock.monotonic() + durationMs;
    this.#timer = clock.after(durationMs, () => this.force('deadline'));
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  remainingMs(): number {
    if (this.signal.aborted) return 0;
    return Math.max(0, this.#endsAt - this.#clock.monotonic());
  }

  /** Ends the drain now. */
  force(why: string): void {
    this.#timer.cancel();
    if (!this.signal.aborted) this.#controller.abort(new Error(why));
  }

  /** Cancels the timer when the drain is over. */
  release(): void {
    this.#timer.cancel();
  }
}
