import type { Clock } from '../clock/clock.ts';

const MS_PER_SECOND = 1_000;

/** Allows a number of actions in one burst; refills with time and by earned tokens. */
export class TokenBucket {
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

  /** Takes one token. Returns false when none is left. */
  spend(): boolean {
    const nowMs = this.#clock.monotonic();
    this.earn(((nowMs - this.#atMs) * this.#perSecond) / MS_PER_SECOND);
    this.#atMs = nowMs;
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** Adds tokens, up to a burst. */
  earn(amount: number): void {
    this.#left = Math.min(this.#burst, this.#left + amount);
  }
}
