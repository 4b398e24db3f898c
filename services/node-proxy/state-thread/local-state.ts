import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { readBounded } from '../../../lib/files/bounded-file.ts';
import { FollowedFile } from '../../../lib/files/followed-file.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { parseLocalFile } from '../../../lib/xds/local/parse.ts';
import type { LocalFileResource } from '../../../lib/xds/local/parse.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { LocalSource } from '../config/local-state.ts';
import {
  FEED_ROWS_PER_MESSAGE,
  LOCAL_STATE_BYTES_MAX,
  LOCAL_STATE_DEBOUNCE_MS,
  LOCAL_STATE_POLL_MS,
} from '../limits.ts';
import { packRows } from './packed-rows.ts';
import type { FeedTarget, StateTable } from './protocol.ts';

/** Policies come first, so that a workload never appears without them. */
const FED_TABLES: readonly (readonly [StateTable, ResourceType | null])[] = [
  ['authorizations', AUTHORIZATION_TYPE],
  ['rejections', null],
  ['addresses', ADDRESS_TYPE],
];

/** Collaborators of {@link LocalState}. */
export interface LocalStateDeps {
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Feeds the mesh state from a local file, for a mesh without a control plane (docs/spec/control.md §4). It follows the file,
 * which upstream does not: a good version replaces the whole version before, a broken or missing one changes nothing.
 */
export class LocalState {
  readonly #source: LocalSource;
  readonly #deps: LocalStateDeps;
  readonly #target: FeedTarget;
  #text: string | null = null;
  #problem: string | null = null;
  #reading: Promise<void> = Promise.resolve();
  /** True when the file is to be read again and that has not begun. */
  #queued = false;
  #followed: FollowedFile | null = null;
  #closed = false;

  constructor(source: LocalSource, deps: LocalStateDeps, target: FeedTarget) {
    this.#source = source;
    this.#deps = deps;
    this.#target = target;
  }

  /** Feeds the state and follows its file. Rejects with CONFIG_INVALID that says what is wrong with the first version. */
  async start(): Promise<void> {
    if ('text' in this.#source) {
      await this.#take(await this.#read());
      return;
    }
    // Follow the file before the first read, so that no change in between is missed.
    this.#followed = new FollowedFile(
      {
        path: this.#source.path,
        debounceMs: LOCAL_STATE_DEBOUNCE_MS,
        pollMs: LOCAL_STATE_POLL_MS,
      },
      this.#deps,
      () => this.#readAgain(),
    );
    const first = this.#read().then((text) => this.#take(text));
    this.#reading = first.catch(() => undefined);
    await first;
  }

  /** Stops following the file; resolves when no step is fed any more. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#followed?.close();
    await this.#reading;
  }

  #readAgain(): void {
    if (this.#queued) return;
    this.#queued = true;
    this.#reading = this.#reading.then(() => this.#update());
  }

  async #update(): Promise<void> {
    this.#queued = false;
    if (this.#closed) return;
    let problem: string | null = null;
    try {
      await this.#take(await this.#read());
    } catch (error) {
      problem = errorText(error);
    }
    // Each look meets the same problem again; log it once.
    if (problem !== null && problem !== this.#problem) {
      this.#deps.log.warn({ problem, keepsLastGood: true }, 'local-state.unusable');
    }
    this.#problem = problem;
  }

  async #read(): Promise<string> {
    if ('text' in this.#source) return this.#source.text;
    const { path } = this.#source;
    try {
      const text = (await readBounded(path, LOCAL_STATE_BYTES_MAX)).toString('utf8');
      // An empty file is probably about to be written. A mesh without policies is written {}.
      if (text.trim() === '') throw new Error('is empty');
      return text;
    } catch (error) {
      throw new MeshError('CONFIG_INVALID', `LOCAL_XDS_PATH ${path}: ${errorText(error)}`, {
        cause: error,
      });
    }
  }

  async #take(text: string): Promise<void> {
    if (text === this.#text || this.#closed) return;
    const name = 'path' in this.#source ? this.#source.path : 'LOCAL_XDS';
    const resources = parseLocalFile(text, name);
    this.#text = text;
    for (const [table, type] of FED_TABLES) {
      await this.#replace(
        table,
        resources.filter((resource) => resource.type === type),
      );
    }
    this.#deps.log.info({ source: name, resources: resources.length }, 'local-state.loaded');
  }

  async #replace(table: StateTable, resources: readonly LocalFileResource[]): Promise<void> {
    await this.#target(table, { kind: 'reset' });
    for (let start = 0; start < resources.length; start += FEED_ROWS_PER_MESSAGE) {
      const part = resources.slice(start, start + FEED_ROWS_PER_MESSAGE);
      const rows = packRows(part.map(({ name, bytes }) => ({ key: name, value: bytes })));
      await this.#target(table, { kind: 'entries', rows });
    }
    await this.#target(table, { kind: 'synced' });
  }
}
