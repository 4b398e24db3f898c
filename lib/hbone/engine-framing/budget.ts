import type { Clock } from '../../clock/clock.ts';

const MS_PER_SECOND = 1_000;

/** A number of things a peer may do in one burst; refills with time, and by what it earns. */
export class Budget {
  readonly #clock: Clock;
  readonly #burst: number;
  readonly #perSecond: number;
  #left: number;
  #atMs: number;

  constructor(clock: Clock, limits: { readonly burst: number; readonly perSecond: number }) {
    this.#clock = clock;
    this.#burst = limits.burst;
    this.#perSecond = limits.perSecond;
    this.#left = limits.burst;
    this.#atMs = clock.monotonic();
  }

  /** Takes one; false when there is none left. */
  spend(): boolean {
    this.#left -= 1;
    if (this.#left >= 0) return true;
    // The clock is looked at only now: an honest peer never comes here.
    const nowMs = this.#clock.monotonic();
    this.earn(((nowMs - this.#atMs) * this.#perSecond) / MS_PER_SECOND);
    this.#atMs = nowMs;
    return this.#left >= 0;
  }

  earn(amount: number): void {
    this.#left = Math.min(this.#burst, this.#left + amount);
  }
}
