import { afterInput } from '../clock/clock.ts';
import type { Clock, Timer } from '../clock/clock.ts';

/** Timers that end together. */
export class SessionTimers {
  readonly #clock: Clock;
  readonly #timers = new Set<Timer>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs `action` after `delayMs` unless the timer or all of them are cancelled. */
  after(delayMs: number, action: () => void): Timer {
    return this.#keep((done) => this.#clock.after(delayMs, done), action);
  }

  /** The same when what has come by then is read, too: for what a peer's silence means. */
  afterInput(delayMs: number, action: () => void): Timer {
    return this.#keep((done) => afterInput(this.#clock, delayMs, done), action);
  }

  /** Runs `action` at a time of the clock; longer than one timer can be set for, too. */
  at(timeMs: number, action: () => void): void {
    this.after(Math.max(0, timeMs - this.#clock.now()), () => {
      if (this.#clock.now() >= timeMs) action();
      else this.at(timeMs, action);
    });
  }

  cancelAll(): void {
    for (const timer of this.#timers) timer.cancel();
    this.#timers.clear();
  }

  #keep(start: (done: () => void) => Timer, action: () => void): Timer {
    const inner = start(() => {
      this.#timers.delete(timer);
      action();
    });
    const timer = {
      cancel: (): void => {
        this.#timers.delete(timer);
        inner.cancel();
      },
    };
    this.#timers.add(timer);
    return timer;
  }
}
