import { WANTED_BATCH_MAX } from '../../../../lib/bus/limits.ts';
import { MeshError, errorText } from '../../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../../lib/log/logger.ts';
import { NAMES_UNSENT_MAX } from '../../limits.ts';

/** Collaborators of {@link WantSender}. */
export interface WantSenderDeps {
  /** Adds one entry for the ingester; rejects while Redis is away. */
  readonly add: (names: readonly string[]) => Promise<void>;
  readonly log: Logger;
}

/**
 * Sends the names that the mesh state wants, one entry at a time; names that come meanwhile go together. What cannot be sent is
 * dropped: the mesh state repeats it.
 */
export class WantSender {
  readonly #deps: WantSenderDeps;
  readonly #names = new Set<string>();
  #sending: Promise<void> | null = null;

  constructor(deps: WantSenderDeps) {
    this.#deps = deps;
  }

  /** Names that were not sent because too many waited. */
  dropped = 0;

  send(names: readonly string[]): void {
    for (const name of names) {
      if (this.#names.size < NAMES_UNSENT_MAX) this.#names.add(name);
      else this.dropped += 1;
    }
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
  }

  /** Resolves when nothing is left to send. */
  get idle(): Promise<void> {
    return this.#sending ?? Promise.resolve();
  }

  async #sendAll(): Promise<void> {
    while (this.#names.size > 0) {
      const batch = [...this.#names].slice(0, WANTED_BATCH_MAX);
      for (const name of batch) this.#names.delete(name);
      try {
        await this.#deps.add(batch);
      } catch (error) {
        if (!(error instanceof MeshError)) throw error;
        this.#names.clear();
        this.#deps.log.warn({ error: errorText(error) }, 'names.not-asked');
      }
    }
  }
}
