import { setImmediate as turn } from 'node:timers/promises';

/** Cuts long work into slices, so that timers, locks and other connections of the process are served in between. */
export class TimeSlice {
  readonly #lengthMs: number;
  #endMs: number;

  /** `lengthMs` is how long the event loop may be held at a time. */
  constructor(lengthMs: number) {
    this.#lengthMs = lengthMs;
    this.#endMs = performance.now() + lengthMs;
  }

  /** Call after each small step: goes on at once while the slice lasts, else lets the event loop turn first. */
  async breathe(): Promise<void> {
    if (performance.now() < this.#endMs) return;
    await turn();
    this.#endMs = performance.now() + this.#lengthMs;
  }
}

/** Runs small steps to their end and returns what they return; holds the event loop for `lengthMs` at a time. */
export async function inSlices<T>(steps: Generator<unknown, T>, lengthMs: number): Promise<T> {
  const slice = new TimeSlice(lengthMs);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
    await slice.breathe();
  }
}
