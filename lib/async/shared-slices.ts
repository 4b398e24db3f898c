/** Steps of one piece of work; it may be left between two of them. */
export type Steps<T = void> = Generator<unknown, T>;

interface Task {
  /** Runs one step; true when it was the last. */
  step(): boolean;
}

/**
 * Runs many pieces of work in turn, one small step each. Together they hold the event loop for one slice at a time;
 * between two slices it serves timers and connections.
 */
export class SharedSlices {
  readonly #sliceMs: number;
  readonly #tasks = new Set<Task>();
  #scheduled = false;
  /** Time that this turn's steps cause after the turn. */
  #chargedMs = 0;

  /** `sliceMs` is the longest time that all work together holds the event loop, give or take one step. */
  constructor(sliceMs: number) {
    this.#sliceMs = sliceMs;
  }

  /** Number of pieces that are not finished. */
  get waiting(): number {
    return this.#tasks.size;
  }

  /** Runs work to its end. Settles like it; never begins before it returns. */
  run<T>(steps: Steps<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#tasks.add({
        step: () => {
          try {
            const result = steps.next();
            if (result.done !== true) return false;
            resolve(result.value);
          } catch (error) {
            reject(error);
          }
          return true;
        },
      });
      this.#schedule();
    });
  }

  /**
   * Called by a step for work that it leaves to others, such as the encryption of what it wrote: the slice ends so much
   * sooner.
   */
  charge(ms: number): void {
    this.#chargedMs += ms;
  }

  #schedule(): void {
    if (this.#scheduled || this.#tasks.size === 0) return;
    this.#scheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#scheduled = false;
    this.#chargedMs = 0;
    const endMs = performance.now() + this.#sliceMs;
    for (const task of this.#tasks) {
      // A set goes on with what is added meanwhile, so work that is not done goes to the end of the round.
      this.#tasks.delete(task);
      if (!task.step()) this.#tasks.add(task);
      if (performance.now() + this.#chargedMs >= endMs) break;
    }
    this.#schedule();
  }
}
