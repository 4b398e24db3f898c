/** Follows the kinds of objects that the pod runtime acts on. */
import type * as z from 'zod';
import type { Clock } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { externalEntryOf, hostsKey, serviceEntryOf } from './hosts-files.ts';
import type { HostEntry } from './hosts-files.ts';
import type { ManifestApi, WatchEvent } from './manifest-api.ts';
import {
  namespaceObject,
  objectKey,
  podObject,
  serviceEntryObject,
  serviceObject,
} from './objects.ts';
import type { NamespaceObject, PodObject } from './objects.ts';

/** A change. A deleted pod is absent from {@link ObjectWatch.pods}. */
export type ObjectChange =
  | { readonly kind: 'pod'; readonly key: string }
  | { readonly kind: 'namespace'; readonly name: string }
  | { readonly kind: 'hosts'; readonly key: string; readonly entry: HostEntry | null };

type Named = { readonly metadata: { readonly namespace: string; readonly name: string } };

/** How the watch handles a kind. */
interface WatchedKind<T extends Named> {
  readonly kind: string;
  readonly schema: z.ZodType<T>;
  keyOf(object: T): string;
  /** Reports the current object of a key; null when it was deleted. */
  tell(key: string, object: T | null): Promise<void>;
}

/** Keeps copies of pods and namespaces, and reports changes. */
export class ObjectWatch {
  readonly pods = new Map<string, PodObject>();
  readonly namespaces = new Map<string, NamespaceObject>();
  readonly #deps: { readonly api: ManifestApi; readonly clock: Clock; readonly log: Logger };
  readonly #onChange: (change: ObjectChange) => Promise<void>;
  readonly #abort = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    deps: { readonly api: ManifestApi; readonly clock: Clock; readonly log: Logger },
    onChange: (change: ObjectChange) => Promise<void>,
  ) {
    this.#deps = deps;
    this.#onChange = onChange;
  }

  /** Begins to follow; returns at once. */
  start(): void {
    const { api, clock, log } = this.#deps;
    const options = { signal: this.#abort.signal, clock, log };
    const follow = <T extends Named>(kind: WatchedKind<T>): Promise<void> =>
      api.watch(kind.kind, this.#handler(kind), options);
    this.#running = Promise.all([
      follow(
        this.#mapKind('Namespace', namespaceObject, this.namespaces, {
          keyOf: ({ metadata }) => metadata.name,
          change: (name) => ({ kind: 'namespace', name }),
        }),
      ),
      follow(
        this.#mapKind('Pod', podObject, this.pods, {
          keyOf: objectKey,
          change: (key) => ({ kind: 'pod', key }),
        }),
      ),
      follow(this.#hostsKind('Service', serviceObject, serviceEntryOf)),
      follow(this.#hostsKind('ServiceEntry', serviceEntryObject, externalEntryOf)),
    ]);
  }

  /** Ends all streams. */
  async stop(): Promise<void> {
    this.#abort.abort(new Error('stopped'));
    await this.#running;
  }

  #handler<T extends Named>(kind: WatchedKind<T>): (event: WatchEvent) => Promise<void> {
    const held = new Set<string>();
    /** Keys since a list began; null outside a list. */
    let listed: Set<string> | null = null;
    const drop = async (key: string): Promise<void> => {
      held.delete(key);
      await kind.tell(key, null);
    };
    const set = async (object: T): Promise<void> => {
      const key = kind.keyOf(object);
      held.add(key);
      await kind.tell(key, object);
      listed?.add(key);
    };
    return async (event) => {
      if (event.type === 'LIST') listed = new Set();
      else if (event.type === 'SYNC') {
        const told = listed;
        for (const key of held) if (told?.has(key) !== true) await drop(key);
        listed = null;
      } else {
        await this.#guard(kind.kind, async () => {
          const object = kind.schema.parse(event.object);
          await (event.type === 'DELETED' ? drop(kind.keyOf(object)) : set(object));
        });
      }
    };
  }

  /** Logs an object that does not parse, so that it does not stop the stream. */
  async #guard(kind: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#deps.log.error({ kind, error: errorText(error) }, 'object.refused');
    }
  }

  /** A kind whose objects are kept. */
  #mapKind<T extends Named>(
    kind: string,
    schema: z.ZodType<T>,
    copies: Map<string, T>,
    { keyOf, change }: { keyOf(object: T): string; change(key: string): ObjectChange },
  ): WatchedKind<T> {
    const tell = async (key: string, object: T | null): Promise<void> => {
      if (object === null) copies.delete(key);
      else copies.set(key, object);
      await this.#onChange(change(key));
    };
    return { kind, schema, keyOf, tell };
  }

  /** A kind that only adds names to the hosts files. */
  #hostsKind<T extends Named>(
    kind: string,
    schema: z.ZodType<T>,
    entryOf: (object: T) => HostEntry | null,
  ): WatchedKind<T> {
    return {
      kind,
      schema,
      keyOf: (object) => hostsKey(kind, object),
      tell: (key, object) =>
        this.#onChange({ kind: 'hosts', key, entry: object === null ? null : entryOf(object) }),
    };
  }
}
