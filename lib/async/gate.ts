import type { Clock } from '../clock/clock.ts';
import { evictOldest } from '../collections/evict.ts';
import { TokenBucket } from './token-bucket.ts';

/** The bounds of a {@link Gate}. */
export interface GateLimits {
  readonly concurrent: number;
  readonly perSecond: number;
}

/** Seconds of the rate that one burst may use. */
const BURST_SECONDS = 2;

/** Bounds work by concurrency and by rate; excess work is turned away. */
export class Gate {
  readonly #concurrent: number;
  readonly #rate: TokenBucket;
  #active = 0;

  constructor({ concurrent, perSecond }: GateLimits, clock: Clock) {
    this.#concurrent = concurrent;
    this.#rate = new TokenBucket(clock, { burst: perSecond * BURST_SECONDS, perSecond });
  }

  /** Returns true when one more may begin; the caller then calls {@link leave} in every case. */
  enter(): boolean {
    if (this.#active >= this.#concurrent || !this.#rate.spend()) return false;
    this.#active += 1;
    return true;
  }

  /** Ends an entered request. `uncounted` returns its part of the rate, for a caller that proved unknown. */
  leave(options: { readonly uncounted?: boolean } = {}): void {
    this.#active -= 1;
    if (options.uncounted === true) this.#rate.earn(1);
  }
}

/** Keeps a rate for each caller, so that one caller cannot use up the rate of all. */
export class CallerRates {
  readonly #limits: { readonly perSecond: number; readonly callers: number };
  readonly #clock: Clock;
  readonly #gates = new Map<string, Gate>();

  /** Beyond `callers`, forgets the least recent caller. */
  constructor(limits: { readonly perSecond: number; readonly callers: number }, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** Returns true when the caller may have one more answer now. */
  allows(caller: string): boolean {
    return this.of(caller).enter();
  }

  /** Returns the caller's own gate. */
  of(caller: string): Gate {
    const { perSecond, callers } = this.#limits;
    const gate =
      this.#gates.get(caller) ?? new Gate({ concurrent: Infinity, perSecond }, this.#clock);
    // The map is ordered by the last request.
    this.#gates.delete(caller);
    this.#gates.set(caller, gate);
    evictOldest(this.#gates, callers);
    return gate;
  }
}
