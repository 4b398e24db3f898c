/** Bounds of an exponential backoff; times in milliseconds, `jitter` as a fraction of the delay. */
export interface BackoffOptions {
  readonly baseMs: number;
  readonly maxMs: number;
  readonly factor?: number;
  readonly jitter?: number;
}

/** Delays that grow by `factor` (2) up to `maxMs`, each varied by ± `jitter` (0.2). */
export class Backoff {
  readonly #options: BackoffOptions;
  readonly #random: () => number;
  #attempt = 0;

  constructor(options: BackoffOptions, random: () => number = Math.random) {
    this.#options = options;
    this.#random = random;
  }

  /** Number of delays since the last {@link reset}. */
  get attempt(): number {
    return this.#attempt;
  }

  /** Returns the next delay in milliseconds. */
  next(): number {
    const { baseMs, maxMs, factor = 2, jitter = 0.2 } = this.#options;
    const plain = Math.min(maxMs, baseMs * factor ** Math.min(this.#attempt, 60));
    this.#attempt += 1;
    return Math.max(0, plain * (1 + jitter * (2 * this.#random() - 1)));
  }

  /** Starts again from `baseMs`. */
  reset(): void {
    this.#attempt = 0;
  }
}
