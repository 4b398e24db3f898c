import type { Clock } from '../clock/clock.ts';
import type { MeshError } from '../errors/mesh-error.ts';

/** Returns a place; later calls do nothing. */
export type Leave = () => void;

/** Bounds of the wait for a place. */
export interface SlotWait {
  readonly limitMs: number;
  readonly maxWaiting: number;
  /** Makes the error of a failed wait. */
  readonly failure: (why: string) => MeshError;
}

/** Bounds work at the same time by a number of places. Further work waits in the order of its arrival. */
export class Slots {
  readonly #max: () => number;
  readonly #clock: Clock;
  /** Each gives a place to a waiter. */
  readonly #queue = new Set<() => void>();
  #taken = 0;

  /** `max` is read each time, because it may change. */
  constructor(max: () => number, clock: Clock) {
    this.#max = max;
    this.#clock = clock;
  }

  /** Number of taken places. */
  get taken(): number {
    return this.#taken;
  }

  /** Number of waiters. */
  get waiting(): number {
    return this.#queue.size;
  }

  /** Runs `work` in its turn, without a time limit; the caller bounds the number of waiters. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const leave = await this.take(null);
    try {
      return await work();
    } finally {
      leave();
    }
  }

  /**
   * Resolves with the function that returns the place. Rejects with the wait's failure when no place is free in time, or when too
   * many wait. With null it waits without a limit.
   */
  take(wait: SlotWait | null): Promise<Leave> {
    if (this.#taken < this.#max() && this.#queue.size === 0) return Promise.resolve(this.#place());
    if (wait !== null && this.#queue.size >= wait.maxWaiting) {
      return Promise.reject(wait.failure(`${wait.maxWaiting} wait already`));
    }
    return new Promise((resolve, reject) => {
      const enter = (): void => {
        timer?.cancel();
        resolve(this.#place());
      };
      const timer =
        wait === null
          ? null
          : this.#clock.after(wait.limitMs, () => {
              this.#queue.delete(enter);
              reject(wait.failure(`no turn within ${wait.limitMs} ms`));
            });
      this.#queue.add(enter);
    });
  }

  #place(): Leave {
    this.#taken += 1;
    let here = true;
    return () => {
      if (!here) return;
      here = false;
      this.#taken -= 1;
      for (const enter of this.#queue) {
        if (this.#taken >= this.#max()) break;
        this.#queue.delete(enter);
        enter();
      }
    };
  }
}
