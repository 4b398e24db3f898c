import { getHeapStatistics } from 'node:v8';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import { releaseFreeMemory, releaseProgramPages } from '../linux/memory.ts';
import type { Logger } from '../log/logger.ts';
import { collectAll } from './collector.ts';

/** How often the process looks whether it is idle. */
const CHECK_MS = 3_000;
/** Processor time of all threads in that while; an idle node takes 1 to 2 % of a core, bringing pods in takes half of one. */
const IDLE_CPU_MS = 150;
/** Between two times, so that work that comes and goes costs a hundredth of a core at most. */
const LEAST_DISTANCE_MS = 30_000;
/** An idle process has garbage too. By this much more heap it is collected, once in a minute or two. */
const GROWN_BYTES = 4 << 20;

/** What gives memory back, and tells of work; tests put their own in its place. */
export interface Memory {
  /** Processor time that all threads have taken so far. */
  cpuMs(): number;
  /** What the main thread's heap takes now. */
  heapBytes(): number;
  /** Collects the garbage of the main thread's heap. */
  collect(): void;
  /** Gives back what is free in C's heaps. */
  releaseFree(): void;
  /** Gives back pages of program files; returns their bytes. */
  releasePages(): number;
}

const own: Memory = {
  cpuMs: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  },
  heapBytes: () => getHeapStatistics().total_heap_size,
  collect: collectAll,
  releaseFree: releaseFreeMemory,
  releasePages: releaseProgramPages,
};

/**
 * Gives back what an idle process does not use: first the garbage of its main thread, and who has more is told; at the next
 * look, when others are done too, free memory of C's heaps, and pages of programs that nothing runs any more. Once when it is
 * ready and the start has settled, and again when it is idle after work or its heap has grown. The main thread stands still
 * for it, 0.1 to 0.4 s. A process that cannot do a part of it is larger, and says so once.
 */
export class IdleMemory {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #memory: Memory;
  readonly #listeners: (() => void)[] = [];
  #timer: Timer | null = null;
  /** Work was done since the last time, the start at first. */
  #worked = true;
  #cpuMs = 0;
  #lastMs = -Infinity;
  /** What the heap took after the last time. */
  #heapBytes = 0;
  /** Garbage was collected, and the rest is still to be done. */
  #half = false;
  #warned = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly memory?: Memory }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#memory = deps.memory ?? own;
  }

  /** Calls `listener` each time, once the main thread has collected its garbage. */
  onRelease(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Everything is ready. Only the first call counts. */
  ready(): void {
    if (this.#timer !== null) return;
    this.#cpuMs = this.#memory.cpuMs();
    this.#timer = this.#clock.every(CHECK_MS, () => this.#check());
  }

  /** The process ends: nothing is given back any more. */
  cancel(): void {
    this.#timer?.cancel();
  }

  #check(): void {
    if (this.#half) {
      this.#half = false;
      this.#releaseRest();
      // What collecting took, here and elsewhere, was no work.
      this.#cpuMs = this.#memory.cpuMs();
      this.#heapBytes = this.#memory.heapBytes();
      return;
    }
    const cpuMs = this.#memory.cpuMs();
    const idle = cpuMs - this.#cpuMs <= IDLE_CPU_MS;
    this.#cpuMs = cpuMs;
    if (!idle) this.#worked = true;
    const now = this.#clock.monotonic();
    if (!idle || now - this.#lastMs < LEAST_DISTANCE_MS) return;
    if (!this.#worked && this.#memory.heapBytes() - this.#heapBytes < GROWN_BYTES) return;
    this.#worked = false;
    this.#lastMs = now;
    this.#half = true;
    this.#attempt(() => {
      this.#memory.collect();
      for (const listener of this.#listeners) listener();
    });
  }

  #releaseRest(): void {
    this.#attempt(() => this.#memory.releaseFree());
    // Last, as all else runs code that would bring pages back.
    this.#attempt(() =>
      this.#log.debug({ programBytes: this.#memory.releasePages() }, 'host.memory-given-back'),
    );
  }

  /** As in a container that hides /proc/self/pagemap, or without --expose-gc. */
  #attempt(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#log[this.#warned ? 'debug' : 'warn']({ error: errorText(error) }, 'host.memory-kept');
      this.#warned = true;
    }
  }
}
