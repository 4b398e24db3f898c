import type { ServerResponse } from 'node:http';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_WATCHERS, MAX_WATCH_BACKLOG_BYTES } from '../limits.ts';
import { keyOf } from '../manifests/kinds.ts';
import type { Kind } from '../manifests/kinds.ts';
import type { ObjectChange, ObjectStore } from '../store/object-store.ts';
import { chunksOf, writeInChunks } from './chunks.ts';
import { HttpRefusal } from '../../../lib/http/answers.ts';

/** The format version in the first line of a stream. A reader that does not know it must stop. */
const WATCH_VERSION = 2;

/**
 * Streams the changes to the objects of a kind as JSON lines: `LIST` with the version, `ADDED` for each object, `SYNC`;
 * then `ADDED`, `MODIFIED` and `DELETED` for each change. The list is sent at the reader's pace, so changes may come before
 * `SYNC`, also for objects that the list has not reached. At `SYNC` the reader drops the objects that it holds from
 * before and that no line named. A watcher that leaves {@link MAX_WATCH_BACKLOG_BYTES} unread is cut and starts again.
 */
export class ObjectWatchers {
  readonly #store: ObjectStore;
  readonly #log: Logger;
  readonly #watchers = new Map<ServerResponse, Kind>();
  readonly #unsubscribe: () => void;

  constructor(store: ObjectStore, log: Logger) {
    this.#store = store;
    this.#log = log;
    this.#unsubscribe = store.onCommit((changes) => this.#send(changes));
  }

  get size(): number {
    return this.#watchers.size;
  }

  /** Starts a stream. Throws {@link HttpRefusal} at {@link MAX_WATCHERS}. */
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
    // The keys are those of the start. Each object is read when its line is written, because later changes come as lines.
    for (const key of [...state.ofKind(kind)].map(keyOf)) {
      const object = state.get(key)?.object;
      if (object !== undefined) yield line({ type: 'ADDED', object });
    }
    yield line({ type: 'SYNC' });
  }

  #send(changes: readonly ObjectChange[]): void {
    for (const kind of new Set(this.#watchers.values())) {
      const selected = changes.filter(({ before, after }) => (after ?? before)?.kind === kind);
      for (const chunk of chunksOf(selected.map(lineOf))) {
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
