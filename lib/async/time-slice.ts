/**
 * Cuts long work into slices, so that the process serves timers, locks and other connections in between. Pieces of work that
 * share one hold the event loop for one slice a turn together; they take turns.
 */
export class TimeSlice {
  readonly #lengthMs: number;
  #endMs: number;
  /** Each lets one piece of work go on. */
  readonly #waiting: (() => void)[] = [];
  #scheduled = false;

  /** `lengthMs` is the longest time that one slice holds the event loop. */
  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs;
    this.#endMs = performance.now() + lengthMs;
  }

  /** Call it after each small step: it returns at once while the slice lasts, else lets the event loop turn first. */
  async breathe(): Promise<void> {
    if (performance.now() < this.#endMs) return;
    await new Promise<void>((resolve) => {
      this.#waiting.push(resolve);
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#scheduled || this.#waiting.length === 0) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#endMs = performance.now() + this.#lengthMs;
      this.#waiting.shift()?.();
      this.#schedule();
    });
  }
}

/** Runs small steps to their end and returns their result. Holds the event loop for `lengthMs` at a time. */
export async function inSlices<T>(steps: Generator<unknown, T>, lengthMs: number): Promise<T> {
  const slice = new TimeSlice(lengthMs);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    await slice.breathe();
  }
}
