import { afterInput } from '../clock/clock.ts';
import type { Clock, Timer } from '../clock/clock.ts';
import { MAX_ACK_RENEWALS } from './limits.ts';

/** Timers of one session, cancelled together. */
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

  /** Like `after`, but runs only when all input that has arrived by then is read. Use it to judge a peer's silence. */
  afterInput(delayMs: number, action: () => void): Timer {
    return this.#keep((done) => afterInput(this.#clock, delayMs, done), action);
  }

  /**
   * Like `afterInput`, but begins again if `heard` has grown meanwhile, at most {@link MAX_ACK_RENEWALS} times: an answer may wait behind
   * all that the peer has sent, on a slow link for long.
   */
  afterSilence(
    delayMs: number,
    heard: () => number,
    action: () => void,
    renewals = MAX_ACK_RENEWALS,
  ): Timer {
    const before = heard();
    let timer = this.afterInput(delayMs, () => {
      if (renewals === 0 || heard() === before) action();
      else timer = this.afterSilence(delayMs, heard, action, renewals - 1);
    });
    return { cancel: () => timer.cancel() };
  }

  /** Runs `action` at a time of the clock, however far away. */
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
