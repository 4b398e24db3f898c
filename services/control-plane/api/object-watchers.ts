import type { ServerResponse } from 'node:http';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_WATCHERS, MAX_WATCH_BACKLOG_BYTES } from '../limits.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { Kind } from '../manifests/kinds.ts';
import type { ObjectChange, ObjectStore } from '../store/object-store.ts';
import { chunksOf, writeInChunks } from './chunks.ts';
import { HttpRefusal } from '../../../lib/http/answers.ts';

/** Named in the first line of a stream. A reader that does not know it must not go on. */
const WATCH_VERSION = 2;

/**
 * Streams of changes to objects of a kind, as JSON lines: `LIST` with the version, `ADDED` for each object there is,
 * `SYNC`; then `ADDED`, `MODIFIED` and `DELETED` as they happen. Changes come among the list too, about objects before or
 * after their place in it; what was not told when `SYNC` comes is gone. The list is sent in the reader's time. A watcher
 * that leaves {@link MAX_WATCH_BACKLOG_BYTES} of changes unread is cut; it comes back and begins afresh.
 */
export class ObjectWatchers {
  readonly #store: ObjectStore;
  readonly #log: Logger;
  readonly #watchers = new Map<ServerResponse, Kind>();
  readonly #unsubscribe: () => void;

  constructor(store: ObjectStore, log: Logger) {
    this.#store = store;
    this.#log = log;
    this.#unsubscribe = store.onCommit((changes) => this.#tell(changes));
  }

  get size(): number {
    return this.#watchers.size;
  }

  /** Begins to stream. Throws {@link HttpRefusal} when there are too many. */
  add(kind: Kind, response: ServerResponse): void {
    if (this.#watchers.size >= MAX_WATCHERS) {
      throw new HttpRefusal(429, `there are ${MAX_WATCHERS} watchers already`);
    }
    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    response.once('close', () => this.#watchers.delete(response));
    this.#watchers.set(response, kind);
    writeInChunks(response, this.#list(kind)).catch((error: unknown) => {
      this.#cut(response, errorText(error));
    });
  }

  /** Ends every stream. */
  close(): void {
    this.#unsubscribe();
    for (const response of this.#watchers.keys()) response.end();
    this.#watchers.clear();
  }

  *#list(kind: Kind): Iterable<string> {
    const { state } = this.#store;
    yield line({ type: 'LIST', version: WATCH_VERSION });
    // The keys of now, each with its object of the moment in which it is written: the changes since then were told.
    for (const key of [...state.ofKind(kind)].map(keyOf)) {
      const object = state.get(key)?.object;
      if (object !== undefined) yield line({ type: 'ADDED', object });
    }
    yield line({ type: 'SYNC' });
  }

  #tell(changes: readonly ObjectChange[]): void {
    for (const kind of new Set(this.#watchers.values())) {
      const told = changes.filter(({ before, after }) => (after ?? before)?.kind === kind);
      for (const chunk of chunksOf(told.map(lineOf))) {
        for (const [response, watched] of this.#watchers) {
          if (watched === kind) this.#write(response, chunk);
        }
      }
    }
  }

  #write(response: ServerResponse, chunk: string): void {
    const writable = response.write(chunk);
    if (writable || response.writableLength <= MAX_WATCH_BACKLOG_BYTES) return;
    this.#cut(response, `${response.writableLength} bytes are unread`);
  }

  #cut(response: ServerResponse, why: string): void {
    this.#log.warn({ why }, 'manifest-api.watcher-cut');
    this.#watchers.delete(response);
    response.destroy();
  }
}

function lineOf({ before, after }: ObjectChange): string {
  const type = before === null ? 'ADDED' : after === null ? 'DELETED' : 'MODIFIED';
  return line({ type, object: after ?? before });
}

function line(content: unknown): string {
  return `${JSON.stringify(content)}\n`;
}
