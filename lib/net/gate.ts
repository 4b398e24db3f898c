import type { Clock } from '../clock/clock.ts';

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

  /** One that had entered is done. `uncounted` gives its part of the rate back: it came from nobody we know. */
  leave(options: { readonly uncounted?: boolean } = {}): void {
    this.#active -= 1;
    if (options.uncounted === true) this.#tokens += 1;
  }
}

/** A rate for each caller, so that one of them cannot use up what is there for all. */
export class CallerRates {
  readonly #limits: { readonly perSecond: number; readonly callers: number };
  readonly #clock: Clock;
  readonly #gates = new Map<string, Gate>();

  /** Beyond `callers` the one that was quiet longest is forgotten. */
  constructor(limits: { readonly perSecond: number; readonly callers: number }, clock: Clock) {
    this.#limits = limits;
    this.#clock = clock;
  }

  /** True when the caller may have one more answer now. */
  allows(caller: string): boolean {
    return this.of(caller).enter();
  }

  /** The caller's own gate. */
  of(caller: string): Gate {
    const { perSecond, callers } = this.#limits;
    const gate =
      this.#gates.get(caller) ??
      new Gate({ concurrent: Number.POSITIVE_INFINITY, perSecond }, this.#clock);
    // The order of the map is that of the last requests.
    this.#gates.delete(caller);
    this.#gates.set(caller, gate);
    const [quietest] = this.#gates.keys();
    if (this.#gates.size > callers && quietest !== undefined) this.#gates.delete(quietest);
    return gate;
  }
}

/** The address of a gRPC peer: `10.0.0.1:40000` and `fd00::1:40000` without their port. */
export function addressOf(peer: string): string {
  const colon = peer.lastIndexOf(':');
  return colon < 0 ? peer : peer.slice(0, colon);
}
