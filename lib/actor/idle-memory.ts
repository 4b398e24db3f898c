import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import { releaseProgramPages } from '../linux/memory.ts';
import type { Logger } from '../log/logger.ts';

/** How often the process looks whether it is idle. */
const CHECK_MS = 3_000;
/** Processor time of all threads in that while; an idle node takes 1 to 2 % of a core, bringing pods in takes half of one. */
const IDLE_CPU_MS = 150;
/** Between two times, so that work that comes and goes costs a hundredth of a core at most. */
const LEAST_DISTANCE_MS = 30_000;

/** V8's own function; `last-resort` also gives back the pages that a collection has emptied in part. */
type Collect = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/** What gives memory back, and tells of work; tests put their own in its place. */
export interface Memory {
  /** Processor time that all threads have taken so far. */
  cpuMs(): number;
  /** Collects the garbage of the calling thread's heap. */
  collect(): void;
  /** Gives back pages of program files; returns their bytes. */
  releasePages(): number;
}

const own: Memory = {
  cpuMs: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1_000;
  },
  collect: collectAll,
  releasePages: releaseProgramPages,
};

/**
 * Gives back what an idle process does not use: the garbage of its main thread, and pages of programs that nothing runs any
 * more. Once when it is ready and the start has settled, and again when it is idle after work. The main thread stands
 * still for it, 0.1 to 0.4 s; other threads do not.
 */
export class IdleMemory {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #memory: Memory;
  #timer: Timer | null = null;
  /** Work was done since the last time, the start at first. */
  #worked = true;
  #cpuMs = 0;
  #lastMs = -Infinity;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly memory?: Memory }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#memory = deps.memory ?? own;
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
    const cpuMs = this.#memory.cpuMs();
    const idle = cpuMs - this.#cpuMs <= IDLE_CPU_MS;
    this.#cpuMs = cpuMs;
    if (!idle) this.#worked = true;
    const now = this.#clock.monotonic();
    if (!idle || !this.#worked || now - this.#lastMs < LEAST_DISTANCE_MS) return;
    this.#worked = false;
    this.#lastMs = now;
    this.#giveBack();
    // This was no work.
    this.#cpuMs = this.#memory.cpuMs();
  }

  #giveBack(): void {
    try {
      // First, as it runs code that would bring pages back.
      this.#memory.collect();
      this.#log.debug({ programBytes: this.#memory.releasePages() }, 'host.memory-given-back');
    } catch (error) {
      // As in a container that hides /proc/self/pagemap: the process is larger for it, and works.
      this.#log.debug({ error: errorText(error) }, 'host.memory-kept');
    }
  }
}

/** The function is in no context made before the flag. Threads made later are to have none. */
function collectAll(): void {
  setFlagsFromString('--expose-gc');
  try {
    const collect = runInNewContext('gc') as Collect;
    collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  } finally {
    setFlagsFromString('--no-expose-gc');
  }
}
