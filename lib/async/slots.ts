import type { Clock } from '../clock/clock.ts';
import type { MeshError } from '../errors/mesh-error.ts';

/** Gives a place back; later calls do nothing. */
export type Leave = () => void;

/** How long a place may be waited for, and by how many. */
export interface SlotWait {
  readonly limitMs: number;
  readonly maxWaiting: number;
  /** What the wait fails with. */
  readonly failure: (why: string) => MeshError;
}

/** Places for work of which only so much may be under way at once; who finds none waits, first come first. */
export class Slots {
  readonly #max: () => number;
  readonly #clock: Clock;
  /** Each gives a place to who waits for it. */
  readonly #queue = new Set<() => void>();
  #taken = 0;

  /** `max` is asked each time, for it may change. */
  constructor(max: () => number, clock: Clock) {
    this.#max = max;
    this.#clock = clock;
  }

  /** Places that are taken. */
  get taken(): number {
    return this.#taken;
  }

  /** Who waits for a place. */
  get waiting(): number {
    return this.#queue.size;
  }

  /** Runs `work` when its turn comes, however long that takes; the caller bounds how many wait. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    const leave = await this.take(null);
    try {
      return await work();
    } finally {
      leave();
    }
  }

  /**
   * Resolves with the function that gives the place back. Rejects with the wait's failure when no place is free in time, or
   * too many wait; with null it waits for as long as it takes.
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
