import { Roster } from '../../collections/roster.ts';
import type { Listed } from '../../collections/roster.ts';
import type { Clock, Timer } from '../../clock/clock.ts';
import type { SessionTimers } from '../session-timers.ts';

/** A request that waits for its answer. */
export interface AwaitedAnswer extends Listed {
  readonly untilMs: number;
  /** Called once when its time is up. */
  readonly late: () => void;
}

/** Limits the time of a tunnel's requests, by one timer for all: a timer for each costs more than all else about the limit. */
export class AnswerLimits {
  readonly #clock: Clock;
  readonly #timers: SessionTimers;
  readonly #limitMs: number;
  /** As many as the tunnel has streams. */
  readonly #waiting = new Roster<AwaitedAnswer>();
  #timer: Timer | null = null;

  constructor(clock: Clock, timers: SessionTimers, limitMs: number) {
    this.#clock = clock;
    this.#timers = timers;
    this.#limitMs = limitMs;
  }

  /** Calls `late` when the time is up, unless the result is given to {@link done} before. */
  begin(late: () => void): AwaitedAnswer {
    const awaited = { place: -1, untilMs: this.#clock.monotonic() + this.#limitMs, late };
    this.#waiting.add(awaited);
    if (this.#timer === null) this.#lookAfter(this.#limitMs);
    return awaited;
  }

  done(awaited: AwaitedAnswer): void {
    this.#waiting.delete(awaited);
  }

  #lookAfter(delayMs: number): void {
    this.#timer = this.#timers.after(delayMs, () => this.#look());
  }

  #look(): void {
    const nowMs = this.#clock.monotonic();
    const late: AwaitedAnswer[] = [];
    let nextMs = Infinity;
    for (const awaited of this.#waiting) {
      if (awaited.untilMs <= nowMs) late.push(awaited);
      else nextMs = Math.min(nextMs, awaited.untilMs);
    }
    // First, as a late request may make room for another one, which begins at once.
    this.#timer = null;
    if (nextMs < Infinity) this.#lookAfter(Math.max(1, Math.ceil(nextMs - nowMs)));
    for (const awaited of late) {
      // The end of one may have been the end of others.
      if (this.#waiting.at(awaited.place) !== awaited) continue;
      this.#waiting.delete(awaited);
      awaited.late();
    }
  }
}
