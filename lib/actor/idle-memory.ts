import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import { releaseFreeMemory, releaseProgramPages } from '../linux/process.ts';
import { processorTimes } from '../linux/processors.ts';
import type { ProcessorTimes } from '../linux/processors.ts';
import type { Logger } from '../log/logger.ts';
import { BusyMachine } from './busy-machine.ts';
import { OWN_COLLECTION, collectFitting } from './collector.ts';
import type { Collection } from './collector.ts';

/** Time between two checks whether the process is idle. */
const CHECK_MS = 3_000;
/** An idle process uses at most this much processor time between two checks: an idle node takes 1 to 2 % of a core, adding pods takes half of one. */
const IDLE_CPU_MS = 150;
/** A process that is not ready this long after its start waits for others. It has garbage like any. */
const START_MS = 30_000;
/** With more than this a process may be answering somebody, who should not wait for a whole collection. */
const STILL_CPU_MS = 75;
/** Time between two releases, so that work that comes and goes costs at most a hundredth of a core. */
const LEAST_DISTANCE_MS = 30_000;
/** Time between two returns of free memory while the process works. Each costs some milliseconds, and as much to bring back what is used. */
const WORKING_DISTANCE_MS = 9_000;
/** Time between two returns of free memory while the process is idle. Each costs some milliseconds of a pool thread. */
const IDLE_DISTANCE_MS = 60_000;
/** An idle process makes garbage too; it is collected when the heap has grown by this much, once in one to four minutes. */
const GROWN_BYTES = 2 << 20;

/** Returns memory and measures work; tests replace it. */
export interface Memory extends Collection {
  /** Returns the processor time that all threads have used so far. */
  cpuMs(): number;
  /** Returns the times of the machine's processors; null where they cannot be read. */
  processors(): ProcessorTimes | null;
  /** Returns free memory of the C heaps to the kernel. */
  releaseFree(): Promise<void>;
  /** Drops pages of program files; resolves with their bytes. */
  releasePages(): Promise<number>;
}

const own: Memory = {
  ...OWN_COLLECTION,
  cpuMs: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  },
  processors: processorTimes,
  releaseFree: releaseFreeMemory,
  releasePages: releaseProgramPages,
};

/**
 * Returns memory that a process does not use. An idle one first collects the garbage of the main thread and calls the listeners.
 * At the next check, when other threads have collected too, a pool thread returns free memory of the C heaps and pages of
 * program files. That happens twice after the start and after work, and again when the heap has grown. Free memory of the C heaps
 * is returned every minute anyway. The main thread stands still for 0.1 to 0.4 s; where it has some work, or a large heap, its
 * garbage is collected in small steps or not at all ({@link collectFitting}). An idle process waits up to a minute and a half for a
 * busy machine. While work goes on, only the pool thread's part is done, after one collection in small steps of what the start
 * left. A process that lacks the means for a step skips it, and logs that once.
 */
export class IdleMemory {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #memory: Memory;
  readonly #machine: BusyMachine;
  readonly #listeners: (() => void)[] = [];
  #starting: Timer | null = null;
  #timer: Timer | null = null;
  /** Whether the process has worked since the last release; at first, the start is its work. */
  #worked = true;
  /** The last release followed work. One more is due: a collection drops only code that did not run since the one before. */
  #again = false;
  /** The garbage of the start has not been collected yet. */
  #fresh = true;
  #cpuMs = 0;
  #lastMs = -Infinity;
  /** The last return of what needs no collection. */
  #lastRestMs = -Infinity;
  /** The last return of free memory of the C heaps. */
  #lastFreeMs = -Infinity;
  /** Size of the heap after the last release. */
  #heapBytes = 0;
  /** Garbage was collected; the next check returns the rest. */
  #half = false;
  #warned = false;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly memory?: Memory }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#memory = deps.memory ?? own;
    this.#machine = new BusyMachine(() => this.#memory.processors(), CHECK_MS);
  }

  /** Calls `listener` at each release, after the main thread has collected its garbage. */
  onRelease(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Starts the checks in half a minute, unless {@link ready} does it earlier; call it when all actors have been started. */
  started(): void {
    this.#starting = this.#clock.after(START_MS, () => this.ready());
  }

  /** Starts the checks; call it when all actors are ready. Only the first call counts. */
  ready(): void {
    if (this.#timer !== null) return;
    this.#starting?.cancel();
    this.#cpuMs = this.#memory.cpuMs();
    this.#timer = this.#clock.every(CHECK_MS, () => this.#check());
  }

  /** Stops the checks. */
  cancel(): void {
    this.#starting?.cancel();
    this.#timer?.cancel();
  }

  #check(): void {
    const cpuMs = this.#memory.cpuMs();
    const usedMs = cpuMs - this.#cpuMs;
    this.#cpuMs = cpuMs;
    const now = this.#clock.monotonic();
    if (this.#half) {
      // The collection, here and in other threads, does not count as work.
      this.#half = false;
      this.#heapBytes = this.#memory.heapBytes();
      void this.#releaseRest(now);
      return;
    }
    if (usedMs > IDLE_CPU_MS) {
      if (this.#fresh) {
        this.#collectStart();
        return;
      }
      const goesOn = this.#worked && now - this.#lastRestMs >= WORKING_DISTANCE_MS;
      this.#worked = true;
      if (goesOn) void this.#releaseRest(now);
      return;
    }
    if (now - this.#lastMs < LEAST_DISTANCE_MS) return;
    const due = this.#worked || this.#again;
    if (!due && this.#memory.heapBytes() - this.#heapBytes < GROWN_BYTES) {
      if (now - this.#lastFreeMs >= IDLE_DISTANCE_MS) void this.#releaseFree(now);
      return;
    }
    if (this.#machine.holdsUp(now)) {
      const sinceMs = Math.max(this.#lastFreeMs, this.#machine.sinceMs);
      if (now - sinceMs >= IDLE_DISTANCE_MS) void this.#releaseFree(now);
      return;
    }
    this.#machine.end();
    this.#again = this.#worked;
    this.#worked = false;
    this.#fresh = false;
    this.#lastMs = now;
    this.#half = true;
    try {
      collectFitting(this.#memory, usedMs > STILL_CPU_MS);
      for (const listener of this.#listeners) listener();
    } catch (error) {
      this.#kept(error);
    }
  }

  /**
   * Collects what the start left in a process that is at work from its start on: else it would keep that until it is idle once. Other
   * threads load less, and are not disturbed.
   */
  #collectStart(): void {
    this.#fresh = false;
    try {
      collectFitting(this.#memory, true);
    } catch (error) {
      this.#kept(error);
    }
  }

  /** Returns free memory of the C heaps. Idle processes were seen to gain 5 to 8 MB of it at once, minutes after their start. */
  async #releaseFree(now: number): Promise<void> {
    this.#lastFreeMs = now;
    await this.#memory.releaseFree().catch((error: unknown) => this.#kept(error));
  }

  async #releaseRest(now: number): Promise<void> {
    this.#lastRestMs = now;
    await this.#releaseFree(now);
    // Last, because any other code would bring pages back.
    await this.#memory.releasePages().then(
      (programBytes) => this.#log.debug({ programBytes }, 'host.memory-released'),
      (error: unknown) => this.#kept(error),
    );
  }

  /** Logs a failure: a container may hide /proc/self/pagemap, or --expose-gc may be missing. */
  #kept(error: unknown): void {
    this.#log[this.#warned ? 'debug' : 'warn']({ error: errorText(error) }, 'host.memory-kept');
    this.#warned = true;
  }
}
