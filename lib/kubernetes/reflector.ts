/** Keeps a reduced copy of a resource in step with the API server. */
import type { IncomingMessage } from 'node:http';
import { TimeSlice } from '../async/time-slice.ts';
import { Backoff } from '../clock/backoff.ts';
import { pause } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import { jsonLines, listItems } from './json-stream.ts';
import {
  ABSENT_POLL_MS,
  EMPTY_LIST_HOLD_MS,
  MAX_BATCH_OBJECTS,
  MAX_LIST_RESTARTS,
  PAGE_OBJECTS,
  SHORTEST_WATCH_MS,
  SLICE_MS,
  SOURCE_BACKOFF,
  WATCH_LIFE_MS,
  WATCH_SILENCE_MS,
} from './limits.ts';
import { isOlderVersion, objectMeta, watchEvent } from './objects.ts';
import type { WatchEvent } from './objects.ts';
import { Batch } from './reflection.ts';
import type { ReflectorDeps, ReflectorOptions } from './reflection.ts';
import { apiVersionOf, resourceName, resourcePath } from './resource.ts';
import { isCode, statusError } from './status.ts';

/** How far a reflector is. `absent`: the API server does not serve the resource. */
export type ReflectorState = 'starting' | 'synced' | 'absent';

/**
 * Lists a resource, then watches it, for ever. Nothing is withdrawn but by the API server's word: a failing list or watch is tried
 * again and leaves the sink as it is; an object is gone when its deletion is told or a complete list does not hold it.
 */
export class Reflector<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #deps: ReflectorDeps;
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(SOURCE_BACKOFF);
  readonly #first = Promise.withResolvers<void>();
  readonly #name: string;
  readonly #slice = new TimeSlice(SLICE_MS);
  #state: ReflectorState = 'starting';
  /** Where the next watch begins; null makes a list necessary. */
  #version: string | null = null;
  /** Place in the resource's versions. */
  #served = 0;
  /** False once the API server refused to stream a list. */
  #streams = true;
  #problem: string | null = null;
  /** Since when lists have been empty while objects are held; monotonic milliseconds. */
  #emptySinceMs: number | null = null;
  #work: Promise<void> | null = null;

  constructor(options: ReflectorOptions<T>, deps: ReflectorDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#name = resourceName(options.resource);
  }

  /** How far it is; once synced or absent it stays one of the two. */
  get state(): ReflectorState {
    return this.#state;
  }

  /** The problem of the last attempt; null while all is well. */
  get problem(): string | null {
    return this.#problem;
  }

  /** The name of the resource. */
  get name(): string {
    return this.#name;
  }

  /** Begins. The promise settles when the reflector is closed; it never rejects. */
  run(): Promise<void> {
    this.#work ??= this.#loop();
    return this.#work;
  }

  /** Resolves once the sink holds a complete list, or the API server does not serve the resource. */
  synced(): Promise<void> {
    return this.#first.promise;
  }

  /** Ends the watch; the sink stays as it is. */
  async close(): Promise<void> {
    this.#closing.abort(new MeshError('KUBERNETES_UNAVAILABLE', 'the reflector is closed'));
    await this.#work;
  }

  async #loop(): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      try {
        if (this.#version === null) await this.#list();
        else await this.#watch(this.#version);
      } catch (error) {
        if (signal.aborted) return;
        await this.#recover(asMeshError(error, 'KUBERNETES_UNAVAILABLE', `watch of ${this.#name}`));
      }
    }
  }

  async #recover(error: MeshError): Promise<void> {
    const { clock, log, metrics } = this.#deps;
    metrics?.failed(this.#name, error.code);
    if (error.code === 'KUBERNETES_EXPIRED') {
      log.info({ resource: this.#name, problem: error.message }, 'kubernetes.watch-expired');
      this.#version = null;
      // A list that expires again and again waits for its turn.
      if (this.#backoff.attempt === 0) {
        this.#backoff.next();
        return;
      }
    }
    if (error.code === 'KUBERNETES_NOT_FOUND') {
      this.#version = null;
      await this.#notServed();
      return;
    }
    if (error.message !== this.#problem) {
      log.warn({ resource: this.#name, problem: error.message }, 'kubernetes.source-failed');
    }
    this.#problem = error.message;
    await pause(clock, this.#backoff.next(), this.#closing.signal);
  }

  /** The resource has another version, or its definition is not installed yet. What is held stays. */
  async #notServed(): Promise<void> {
    const { resource } = this.#options;
    this.#served = (this.#served + 1) % resource.versions.length;
    if (this.#served !== 0) return;
    if (this.#state !== 'absent') {
      this.#deps.log.info({ resource: this.#name }, 'kubernetes.resource-absent');
    }
    this.#state = 'absent';
    this.#first.resolve();
    await pause(this.#deps.clock, ABSENT_POLL_MS, this.#closing.signal);
  }

  async #list(): Promise<void> {
    const seen = new Set<string>();
    const way = this.#streams ? 'stream' : 'pages';
    let version: string;
    if (this.#streams) {
      try {
        version = await this.#streamList(seen);
      } catch (error) {
        if (!isCode(error, 'KUBERNETES_INVALID')) throw error;
        this.#streams = false;
        this.#deps.log.debug({ resource: this.#name }, 'kubernetes.streaming-list-refused');
        return;
      }
    } else {
      version = await this.#pagedList(seen);
    }
    this.#doubtEmptiness(seen);
    this.#version = version;
    await this.#withdrawUnseen(seen);
    this.#deps.metrics?.listed(this.#name, way);
    this.#well();
    if (this.#state !== 'synced') {
      this.#deps.log.info({ resource: this.#name, objects: seen.size, way }, 'kubernetes.synced');
    }
    this.#state = 'synced';
    this.#first.resolve();
  }

  #well(): void {
    this.#backoff.reset();
    if (this.#problem === null) return;
    this.#problem = null;
    this.#deps.log.info({ resource: this.#name }, 'kubernetes.source-recovered');
  }

  /** Throws KUBERNETES_UNAVAILABLE while a list that withdraws everything has to repeat itself. */
  #doubtEmptiness(seen: ReadonlySet<string>): void {
    const holds = this.#options.sink.keys()[Symbol.iterator]().next().done !== true;
    if (seen.size > 0 || !holds) {
      this.#emptySinceMs = null;
      return;
    }
    const now = this.#deps.clock.monotonic();
    this.#emptySinceMs ??= now;
    if (now - this.#emptySinceMs >= EMPTY_LIST_HOLD_MS) return;
    throw new MeshError(
      'KUBERNETES_UNAVAILABLE',
      `the list of ${this.#name} has become empty; all objects stay until it has been empty for ${EMPTY_LIST_HOLD_MS / 1_000} s`,
    );
  }

  async #withdrawUnseen(seen: ReadonlySet<string>): Promise<void> {
    const gone = [...this.#options.sink.keys()].filter((key) => !seen.has(key));
    for (let start = 0; start < gone.length; start += MAX_BATCH_OBJECTS) {
      const part = gone.slice(start, start + MAX_BATCH_OBJECTS);
      this.#options.sink.apply(part.map((key) => ({ key, object: null })));
      await this.#slice.breathe();
    }
  }

  #path(): string {
    const { resource, namespace = null } = this.#options;
    return resourcePath(resource, { version: this.#servedVersion(), namespace });
  }

  #servedVersion(): string {
    const { versions } = this.#options.resource;
    return versions[this.#served] ?? versions[0];
  }

  #selectors(): Record<string, string> {
    const { fieldSelector } = this.#options;
    return fieldSelector === undefined ? {} : { fieldSelector };
  }

  /** Reads pages until the end; an expired token begins again. Returns the version of the list. */
  async #pagedList(seen: Set<string>): Promise<string> {
    const { client } = this.#deps;
    for (let restarts = 0; ; restarts += 1) {
      try {
        seen.clear();
        for (let next = ''; ;) {
          const query = {
            limit: String(PAGE_OBJECTS),
            ...(next === '' ? {} : { continue: next }),
            ...this.#selectors(),
          };
          const { signal } = this.#closing;
          const response = await client.stream({ path: this.#path(), query, signal });
          const end = await this.#page(response, seen);
          if (end.continue === undefined || end.continue === '') return end.resourceVersion;
          next = end.continue;
        }
      } catch (error) {
        if (!isCode(error, 'KUBERNETES_EXPIRED') || restarts >= MAX_LIST_RESTARTS) throw error;
        this.#deps.log.info({ resource: this.#name }, 'kubernetes.list-expired');
      }
    }
  }

  async #page(
    response: IncomingMessage,
    seen: Set<string>,
  ): Promise<{ readonly resourceVersion: string; readonly continue?: string | undefined }> {
    const batch = new Batch(this.#options.sink);
    const items = listItems(response as AsyncIterable<Buffer>, this.#name);
    for (;;) {
      const { done, value } = await items.next();
      if (done === true) {
        batch.flush();
        return objectMeta.list(value, this.#name);
      }
      this.#take(value, 'put', batch, seen);
      await this.#slice.breathe();
    }
  }

  /** Opens a watch that begins with all objects. Returns the version at which they were complete. */
  async #streamList(seen: Set<string>): Promise<string> {
    const query = { sendInitialEvents: 'true', resourceVersionMatch: 'NotOlderThan' };
    for await (const event of this.#events(query, (batch, { object, type }) => {
      if (type === 'put') this.#take(object, 'put', batch, seen);
      if (type === 'delete') {
        this.#take(object, 'delete', batch, null);
        seen.delete(objectMeta.key(object, this.#name));
      }
    })) {
      if (event.initialEnd) return event.version;
    }
    throw new MeshError('KUBERNETES_UNAVAILABLE', `the list of ${this.#name} ended too early`);
  }

  async #watch(from: string): Promise<void> {
    const { clock } = this.#deps;
    const begun = clock.monotonic();
    let quiet = true;
    for await (const event of this.#events({ resourceVersion: from }, (batch, { object, type }) => {
      if (type === 'put' || type === 'delete') this.#take(object, type, batch, null);
    })) {
      quiet = false;
      if (isOlderVersion(event.version, from)) {
        throw new MeshError(
          'KUBERNETES_EXPIRED',
          `the version of ${this.#name} went back from ${from} to ${event.version}: the store was replaced or restored`,
        );
      }
      this.#version = event.version;
      this.#well();
    }
    if (quiet && clock.monotonic() - begun < SHORTEST_WATCH_MS) {
      throw new MeshError('KUBERNETES_UNAVAILABLE', `the watch of ${this.#name} ended at once`);
    }
    this.#well();
  }

  /** Reads a watch to its end. Gives each event to `take`, and yields the last one that the sink has. */
  async *#events(
    start: Readonly<Record<string, string>>,
    take: (batch: Batch<T>, event: WatchEvent) => void,
  ): AsyncGenerator<WatchEvent, void> {
    const life = (WATCH_LIFE_MS * (2 + 2 * Math.random())) / 3;
    const query = {
      watch: 'true',
      allowWatchBookmarks: 'true',
      timeoutSeconds: String(Math.round(life / 1_000)),
      ...start,
      ...this.#selectors(),
    };
    const { signal } = this.#closing;
    const response = await this.#deps.client.stream({
      path: this.#path(),
      query,
      signal,
      silenceMs: WATCH_SILENCE_MS,
    });
    const batch = new Batch(this.#options.sink);
    try {
      for await (const lines of jsonLines(response as AsyncIterable<Buffer>, this.#name)) {
        let last: WatchEvent | null = null;
        for (const line of lines) {
          const event = watchEvent(line, this.#name);
          if (event.type === 'error') {
            throw statusError(`watch of ${this.#name}`, 500, event.object);
          }
          take(batch, event);
          last = event;
          if (event.initialEnd) break;
        }
        batch.flush();
        if (last !== null) yield last;
        await this.#slice.breathe();
      }
    } finally {
      batch.flush();
      response.destroy();
    }
  }

  #take(raw: unknown, type: 'put' | 'delete', batch: Batch<T>, seen: Set<string> | null): void {
    const key = objectMeta.key(raw, this.#name);
    if (type === 'delete') {
      batch.add({ key, object: null });
      return;
    }
    seen?.add(key);
    const { reduce, resource, kind } = this.#options;
    try {
      const apiVersion = apiVersionOf(resource, this.#servedVersion());
      const object = reduce({ ...(raw as Record<string, unknown>), apiVersion, kind });
      batch.add({ key, object });
    } catch (error) {
      this.#deps.metrics?.objectRefused(this.#name);
      const problem = asMeshError(error, 'KUBERNETES_INVALID').message;
      this.#deps.log.warn(
        { resource: this.#name, object: key, problem },
        'kubernetes.object-refused',
      );
    }
  }
}
