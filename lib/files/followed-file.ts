import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';

/** The file to follow. Times in milliseconds. */
export interface FollowOptions {
  readonly path: string;
  /** Delay after the last event: a projected volume replaces its files in several steps. */
  readonly debounceMs: number;
  /** Interval of calls without an event: watching may be impossible, or the folder may not exist yet. */
  readonly pollMs: number;
}

/** Collaborators of a {@link FollowedFile}. */
export interface FollowDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'warn'>;
}

/**
 * Calls `changed` when a file may have changed: after events of its folder, because updates replace the file or a link to
 * it, and at intervals. The owner closes it.
 */
export class FollowedFile {
  readonly #options: FollowOptions;
  readonly #deps: FollowDeps;
  readonly #changed: () => void;
  readonly #poll: Timer;
  #watcher: FSWatcher | null = null;
  #settle: Timer | null = null;
  #closed = false;

  constructor(options: FollowOptions, deps: FollowDeps, changed: () => void) {
    this.#options = options;
    this.#deps = deps;
    this.#changed = changed;
    this.#watch();
    this.#poll = deps.clock.every(options.pollMs, () => {
      if (this.#watcher === null) this.#watch();
      changed();
    });
  }

  close(): void {
    this.#closed = true;
    this.#watcher?.close();
    this.#poll.cancel();
    this.#settle?.cancel();
  }

  #watch(): void {
    const { path } = this.#options;
    try {
      this.#watcher = watch(dirname(path), { persistent: false }, () => this.#soon());
      this.#watcher.on('error', (error) => {
        this.#deps.log.warn({ path, problem: errorText(error) }, 'file.watch-lost');
        this.#watcher?.close();
        this.#watcher = null;
      });
    } catch (error) {
      // The folder does not exist yet; the poll tries again.
      this.#deps.log.debug({ path, problem: errorText(error) }, 'file.watch-failed');
    }
  }

  #soon(): void {
    if (this.#closed) return;
    this.#settle?.cancel();
    this.#settle = this.#deps.clock.after(this.#options.debounceMs, this.#changed);
  }
}
