import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import { releaseProgramPages } from '../linux/memory.ts';
import type { Logger } from '../log/logger.ts';

/** After ready: what was waited for has come by then, and its garbage has been made. */
const SETTLE_MS = 3_000;

/** V8's own function; `last-resort` also gives back the pages that a collection has emptied in part. */
type Collect = (options: { type: 'major'; execution: 'sync'; flavor: 'last-resort' }) => void;

/** What gives memory back; tests put their own in its place. */
export interface Release {
  /** Collects the garbage of the calling thread's heap. */
  collect(): void;
  /** Gives back pages of program files; returns their bytes. */
  releasePages(): number;
}

const release: Release = { collect: collectAll, releasePages: releaseProgramPages };

/**
 * Gives back, once, what a process took only to start: the garbage of its main thread, and the pages of programs that
 * nothing runs any more. The main thread stands still for it, 0.1 to 0.3 s; other threads do not.
 */
export class IdleMemory {
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #release: Release;
  #timer: Timer | null = null;

  constructor(deps: { readonly clock: Clock; readonly log: Logger; readonly release?: Release }) {
    this.#clock = deps.clock;
    this.#log = deps.log;
    this.#release = deps.release ?? release;
  }

  /** Everything is ready: memory is given back when that has settled. Only the first call counts. */
  ready(): void {
    this.#timer ??= this.#clock.after(SETTLE_MS, () => this.#giveBack());
  }

  /** The process ends: nothing is given back any more. */
  cancel(): void {
    this.#timer?.cancel();
  }

  #giveBack(): void {
    try {
      // First, as it runs code that would bring pages back.
      this.#release.collect();
      this.#log.debug({ programBytes: this.#release.releasePages() }, 'host.memory-given-back');
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
