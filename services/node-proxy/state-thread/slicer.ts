import { setImmediate as turn } from 'node:timers/promises';
import { STATE_SLICE_MS } from '../limits.ts';

/** Cuts long work into slices, between which the event loop serves the ports. */
export class Slicer {
  #sliceEnd = performance.now() + STATE_SLICE_MS;

  /** Call after each small step: goes on at once while the slice lasts, else lets the loop turn first. */
  async breathe(): Promise<void> {
    if (performance.now() < this.#sliceEnd) return;
    await turn();
    this.#sliceEnd = performance.now() + STATE_SLICE_MS;
  }
}
