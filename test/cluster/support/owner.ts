import type { TeardownOwner } from '../../support/actor-context.ts';

type End = () => unknown;

/** Owns what outlives a single test. */
export class Owner implements TeardownOwner {
  readonly #ends: End[] = [];

  /** Adds an end; the last one runs first. */
  teardown(end: End): void {
    this.#ends.push(end);
  }

  /** Runs all ends, also when one fails, and throws the first failure. Idempotent. */
  async end(): Promise<void> {
    const failures: unknown[] = [];
    for (let end = this.#ends.pop(); end !== undefined; end = this.#ends.pop()) {
      try {
        await end();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }
}
