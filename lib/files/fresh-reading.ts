/**
 * Reads something one time after another. Who asks while a reading goes on gets one that begins after it: what the one
 * under way has read may be older than the question.
 */
export class FreshReading {
  readonly #read: () => Promise<void>;
  #current: Promise<void> | null = null;
  #next: Promise<void> | null = null;

  /** `read` reports its own failures and never rejects. */
  constructor(read: () => Promise<void>) {
    this.#read = read;
  }

  /** Resolves when a reading has ended that began after this call. */
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
