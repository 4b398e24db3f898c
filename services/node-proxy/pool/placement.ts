import { BUSY_THREAD_UTILISATION } from '../limits.ts';

/** The load of a thread, which decides on placement. */
export interface ThreadLoad {
  readonly thread: number;
  readonly pods: number;
  /** Share of time that its event loop was busy lately, 0 to 1. */
  readonly utilisation: number;
}

/**
 * Chooses the thread for one more pod: one that is not saturated before others, then the one with the fewest pods, then the
 * least busy, then the lowest number. Null when there is none.
 */
export function leastLoaded(threads: Iterable<ThreadLoad>): number | null {
  let best: ThreadLoad | null = null;
  for (const candidate of threads) {
    if (best === null || compare(candidate, best) < 0) best = candidate;
  }
  return best?.thread ?? null;
}

function compare(left: ThreadLoad, right: ThreadLoad): number {
  return (
    Number(left.utilisation > BUSY_THREAD_UTILISATION) -
      Number(right.utilisation > BUSY_THREAD_UTILISATION) ||
    left.pods - right.pods ||
    left.utilisation - right.utilisation ||
    left.thread - right.thread
  );
}
