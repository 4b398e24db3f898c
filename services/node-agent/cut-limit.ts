import type { Clock } from '../../lib/clock/clock.ts';
import { CUT_SHARE, CUT_WINDOW_MS } from './limits.ts';

/** Bounds how many pods of the node are cut off, so that a fault of the agent or of the kernel does not take all of them at once. */
export class CutLimit {
  readonly #clock: Pick<Clock, 'monotonic'>;
  /** Times of the cuts within the window, oldest first. */
  #cuts: readonly number[] = [];

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** Returns whether one more of so many pods may be cut off now, and counts it. */
  allow(pods: number): boolean {
    const nowMs = this.#clock.monotonic();
    this.#cuts = this.#cuts.filter((atMs) => nowMs - atMs < CUT_WINDOW_MS);
    if (this.#cuts.length >= Math.max(1, Math.floor(pods * CUT_SHARE))) return false;
    this.#cuts = [...this.#cuts, nowMs];
    return true;
  }
}
