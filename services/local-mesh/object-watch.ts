/** Follows the kinds of objects that the pod runtime acts on. */
import type { z } from 'zod';
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

/** What changed. A pod is looked up in {@link ObjectWatch.pods}; absent there, it is gone. */
export type ObjectChange =
  | { readonly kind: 'pod'; readonly key: string }
  | { readonly kind: 'namespace'; readonly name: string }
  | { readonly kind: 'hosts'; readonly key: string; readonly entry: HostEntry | null };

interface WatchedKind {
  readonly kind: string;
  set(object: unknown): Promise<string>;
  remove(object: unknown): Promise<void>;
  /** Drops what is held but not among `keys`. */
  retain(keys: ReadonlySet<string>): Promise<void>;
}

/** Copies of pods and namespaces, and a stream of changes. */
export class ObjectWatch {
  readonly pods = new Map<string, PodObject>();
  readonly namespaces = new Map<string, NamespaceObject>();
  readonly #deps: { readonly api: ManifestApi; readonly clock: Clock; readonly log: Logger };
  readonly #onChange: (change: ObjectChange) => Promise<void>;
  /** What was told of a kind since its list began, until the list ends. */
  readonly #listed = new Map<WatchedKind, Set<string>>();
  readonly #abort = new AbortController();
  #running: Promise<unknown> = Promise.resolve();

  constructor(
    deps: { readonly api: ManifestApi; readonly clock: Clock; readonly log: Logger },
    onChange: (change: ObjectChange) => Promise<void>,
  ) {
    this.#deps = deps;
    this.#onChange = onChange;
  }

  /** Begins; returns at once. */
  start(): void {
    const { api, clock, log } = this.#deps;
    const options = { signal: this.#abort.signal, clock, log };
    const kinds = [
      this.#namespaceKind(),
      this.#podKind(),
      this.#hostsKind('Service', serviceObject, serviceEntryOf),
      this.#hostsKind('ServiceEntry', serviceEntryObject, externalEntryOf),
    ];
    this.#running = Promise.all(
      kinds.map((kind) => api.watch(kind.kind, (event) => this.#handle(kind, event), options)),
    );
  }

  /** Ends all streams. */
  async stop(): Promise<void> {
    this.#abort.abort(new Error('stopped'));
    await this.#running;
  }

  async #handle(kind: WatchedKind, event: WatchEvent): Promise<void> {
    switch (event.type) {
      case 'LIST':
        this.#listed.set(kind, new Set());
        break;
      case 'SYNC':
        await kind.retain(this.#listed.get(kind) ?? new Set());
        this.#listed.delete(kind);
        break;
      case 'DELETED':
        await this.#guard(kind.kind, () => kind.remove(event.object));
        break;
      default: {
        const key = await this.#guard(kind.kind, () => kind.set(event.object));
        if (key !== null) this.#listed.get(kind)?.add(key);
      }
    }
  }

  /** One object that does not parse must not stop the stream. */
  async #guard<T>(kind: string, work: () => Promise<T>): Promise<T | null> {
    try {
      return await work();
    } catch (error) {
      this.#deps.log.error({ kind, error: errorText(error) }, 'object.refused');
      return null;
    }
  }

  #podKind(): WatchedKind {
    return this.#mapKind('Pod', podObject, this.pods, (key) => ({ kind: 'pod', key }));
  }

  #namespaceKind(): WatchedKind {
    const named = namespaceObject.transform((object) => object);
    return {
      kind: 'Namespace',
      set: async (item) => {
        const object = named.parse(item);
        const { name } = object.metadata;
        this.namespaces.set(name, object);
        await this.#onChange({ kind: 'namespace', name });
        return name;
      },
      remove: async (item) => this.#dropNamespace(named.parse(item).metadata.name),
      retain: async (keys) => {
        for (const name of this.namespaces.keys()) {
          if (!keys.has(name)) await this.#dropNamespace(name);
        }
      },
    };
  }

  async #dropNamespace(name: string): Promise<void> {
    this.namespaces.delete(name);
    await this.#onChange({ kind: 'namespace', name });
  }

  #mapKind<T extends { readonly metadata: { readonly namespace: string; readonly name: string } }>(
    kind: string,
    schema: z.ZodType<T>,
    held: Map<string, T>,
    change: (key: string) => ObjectChange,
  ): WatchedKind {
    const drop = async (key: string): Promise<void> => {
      held.delete(key);
      await this.#onChange(change(key));
    };
    return {
      kind,
      set: async (item) => {
        const object = schema.parse(item);
        const key = objectKey(object);
        held.set(key, object);
        await this.#onChange(change(key));
        return key;
      },
      remove: async (item) => drop(objectKey(schema.parse(item))),
      retain: async (keys) => {
        for (const key of held.keys()) if (!keys.has(key)) await drop(key);
      },
    };
  }

  #hostsKind<
    T extends { readonly metadata: { readonly namespace: string; readonly name: string } },
  >(kind: string, schema: z.ZodType<T>, entryOf: (object: T) => HostEntry | null): WatchedKind {
    const held = new Set<string>();
    const tell = (key: string, entry: HostEntry | null): Promise<void> =>
      this.#onChange({ kind: 'hosts', key, entry });
    return {
      kind,
      set: async (item) => {
        const object = schema.parse(item);
        const key = hostsKey(kind, object);
        held.add(key);
        await tell(key, entryOf(object));
        return key;
      },
      remove: async (item) => {
        const key = hostsKey(kind, schema.parse(item));
        held.delete(key);
        await tell(key, null);
      },
      retain: async (keys) => {
        for (const key of held) {
          if (keys.has(key)) continue;
          held.delete(key);
          await tell(key, null);
        }
      },
    };
  }
}
