import type { Clock } from '../clock/clock.ts';
import { ABANDONED_REQUESTS_BURST, ABANDONED_REQUESTS_PER_SECOND } from './limits.ts';

const MS_PER_SECOND = 1_000;

/** How many requests a peer may still give up before they are answered; refills with time. */
export class AbandonBudget {
  readonly #clock: Clock;
  #left = ABANDONED_REQUESTS_BURST;
  #atMs: number;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#atMs = clock.monotonic();
  }

  /** Takes one; false when there is none left. */
  spend(): boolean {
    const nowMs = this.#clock.monotonic();
    const refilled =
      this.#left + ((nowMs - this.#atMs) * ABANDONED_REQUESTS_PER_SECOND) / MS_PER_SECOND;
    this.#atMs = nowMs;
    this.#left = Math.min(ABANDONED_REQUESTS_BURST, refilled) - 1;
    return this.#left >= 0;
  }
}
