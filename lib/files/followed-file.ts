import { watch } from 'node:fs';
import type { FSWatcher } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';

/** What to follow and how. Times in milliseconds. */
export interface FollowOptions {
  readonly path: string;
  /** Between the last event and the call: a projected volume replaces its files in several steps. */
  readonly debounceMs: number;
  /** Between calls without an event: where watching is impossible, or the folder does not exist yet. */
  readonly pollMs: number;
}

/** What following needs. */
export interface FollowDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'warn'>;
}

/**
 * Calls `changed` when a file may have changed: on events of its folder, since updates replace the file or a link on the
 * way to it, and now and then without one. The owner closes it.
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
      // Without the folder there is nothing to watch yet; the poll tries again.
      this.#deps.log.debug({ path, problem: errorText(error) }, 'file.watch-failed');
    }
  }

  #soon(): void {
    if (this.#closed) return;
    this.#settle?.cancel();
    this.#settle = this.#deps.clock.after(this.#options.debounceMs, this.#changed);
  }
}
