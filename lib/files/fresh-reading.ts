/**
 * Runs readings one after another. A call during a reading gets the next one, because the reading under way may already have
 * seen older content.
 */
export class FreshReading {
  readonly #read: () => Promise<void>;
  #current: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  /** `read` reports its own failures and never rejects. */
  constructor(read: () => Promise<void>) {
    this.#read = read;
  }

  /** Resolves at the end of a reading that began after this call. */
  run(): Promise<void> {
    if (this.#current === null) {
      this.#current = this.#read().finally(() => {
        this.#current = null;
      });
      return this.#current;
    }
    this.#next ??= this.#current.then(() => {
      this.#next = null;
      return this.run();
    });
    return this.#next;
  }
}
