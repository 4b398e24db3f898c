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
