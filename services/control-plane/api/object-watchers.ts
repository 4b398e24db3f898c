import type { ServerResponse } from 'node:http';
import type { Logger } from '../../../lib/log/logger.ts';
import { MAX_WATCHERS, MAX_WATCH_BACKLOG_BYTES } from '../limits.ts';
import type { Kind } from '../manifests/kinds.ts';
import type { ObjectChange, ObjectStore } from '../store/object-store.ts';
import { HttpRefusal } from './http-body.ts';

/**
 * Streams of changes to objects of a kind: one JSON line with everything, then one for each change. A watcher
 * that does not read is cut at {@link MAX_WATCH_BACKLOG_BYTES}; it comes back and begins afresh.
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
    this.#write(response, { type: 'SYNC', items: [...this.#store.state.ofKind(kind)] });
  }

  /** Ends every stream. */
  close(): void {
    this.#unsubscribe();
    for (const response of this.#watchers.keys()) response.end();
    this.#watchers.clear();
  }

  #tell(changes: readonly ObjectChange[]): void {
    for (const change of changes) {
      const object = change.after ?? change.before;
      const type =
        change.before === null ? 'ADDED' : change.after === null ? 'DELETED' : 'MODIFIED';
      for (const [response, kind] of this.#watchers) {
        if (object?.kind === kind) this.#write(response, { type, object });
      }
    }
  }

  #write(response: ServerResponse, line: unknown): void {
    const writable = response.write(`${JSON.stringify(line)}\n`);
    if (writable || response.writableLength <= MAX_WATCH_BACKLOG_BYTES) return;
    this.#log.warn({ bytes: response.writableLength }, 'manifest-api.slow-watcher-cut');
    this.#watchers.delete(response);
    response.destroy();
  }
}
