import type { Clock } from '../../lib/clock/clock.ts';

/** How much may pass. */
export interface GateLimits {
  readonly concurrent: number;
  readonly perSecond: number;
}

/** Bounds work by concurrency and by rate (a bucket of two seconds' worth); what does not fit is turned away. */
export class Gate {
  readonly #limits: GateLimits;
  readonly #clock: Clock;
  #active = 0;
  #tokens: number;
  #filledAt: number;

  constructor(limits: GateLimits, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
    this.#tokens = limits.perSecond * 2;
    this.#filledAt = clock.monotonic();
  }

  /** True when one more may begin; {@link leave} follows in every case. */
  enter(): boolean {
    const now = this.#clock.monotonic();
    const { perSecond, concurrent } = this.#limits;
    const gained = ((now - this.#filledAt) / 1000) * perSecond;
    this.#tokens = Math.min(perSecond * 2, this.#tokens + gained);
    this.#filledAt = now;
    if (this.#active >= concurrent || this.#tokens < 1) return false;
    this.#active += 1;
    this.#tokens -= 1;
    return true;
  }

  /** One that had entered is done. */
  leave(): void {
    this.#active -= 1;
  }
}
