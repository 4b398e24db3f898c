/** The objects of the mesh and where they came from, in memory; and drafts of what they may become. */
import { keyOf, namespaceOf } from '../manifests/kinds.ts';
import type { Kind, KubeObject, ObjectOf } from '../manifests/kinds.ts';
import { objectKey } from '../manifests/kinds.ts';
import { ownedAddresses } from './addresses.ts';

/** An object and the manifest file it belongs to; null when it came by the API. */
export interface StoredObject {
  readonly object: KubeObject;
  readonly file: string | null;
}

/** What is known of a manifest file: the hash of the content last applied, and the objects it defines. */
export interface FileRecord {
  readonly hash: string;
  readonly keys: readonly string[];
}

/** One step of a transaction, as the journal keeps it. */
export type StateChange =
  | { readonly op: 'put'; readonly object: KubeObject; readonly file: string | null }
  | { readonly op: 'delete'; readonly key: string }
  | { readonly op: 'file'; readonly name: string; readonly record: FileRecord | null };

/** Read access, to the state or to a draft over it. */
export interface StateView {
  get(key: string): StoredObject | undefined;
  /** Objects that live in the namespace; the Namespace itself is not among them. */
  inNamespace(namespace: string): Iterable<StoredObject>;
  /** Who holds an allocated address: the key of a Service or ServiceEntry. */
  addressOwner(ip: string): string | undefined;
  file(name: string): FileRecord | undefined;
}

/** The committed state. Objects are never changed in place: a change replaces them. */
export class MeshState implements StateView {
  readonly #objects = new Map<string, StoredObject>();
  readonly #namespaces = new Map<string, Map<string, StoredObject>>();
  readonly #kinds = new Map<Kind, Map<string, StoredObject>>();
  readonly #addresses = new Map<string, string>();
  readonly #files = new Map<string, FileRecord>();

  get size(): number {
    return this.#objects.size;
  }

  get(key: string): StoredObject | undefined {
    return this.#objects.get(key);
  }

  inNamespace(namespace: string): Iterable<StoredObject> {
    return this.#namespaces.get(namespace)?.values() ?? [];
  }

  addressOwner(ip: string): string | undefined {
    return this.#addresses.get(ip);
  }

  file(name: string): FileRecord | undefined {
    return this.#files.get(name);
  }

  /** Names of the files objects came from. */
  fileNames(): Iterable<string> {
    return this.#files.keys();
  }

  /** The object of a kind, if it is there. */
  object<K extends Kind>(kind: K, namespace: string, name: string): ObjectOf<K> | undefined {
    return this.#objects.get(objectKey(kind, namespace, name))?.object as ObjectOf<K> | undefined;
  }

  /** All objects of a kind, in order of arrival. */
  *ofKind<K extends Kind>(kind: K): Iterable<ObjectOf<K>> {
    for (const stored of this.#kinds.get(kind)?.values() ?? []) yield stored.object as ObjectOf<K>;
  }

  /** How many objects of a kind there are. */
  count(kind: Kind): number {
    return this.#kinds.get(kind)?.size ?? 0;
  }

  /** Everything, as changes that would rebuild it. */
  *contents(): Iterable<StateChange> {
    for (const { object, file } of this.#objects.values()) yield { op: 'put', object, file };
    for (const [name, record] of this.#files) yield { op: 'file', name, record };
  }

  apply(change: StateChange): void {
    switch (change.op) {
      case 'put':
        this.#put(change.object, change.file);
        return;
      case 'delete':
        this.#delete(change.key);
        return;
      case 'file':
        if (change.record === null) this.#files.delete(change.name);
        else this.#files.set(change.name, change.record);
    }
  }

  #put(object: KubeObject, file: string | null): void {
    const key = keyOf(object);
    const before = this.#objects.get(key);
    if (before !== undefined) this.#release(before.object, key);
    const stored = { object, file };
    this.#objects.set(key, stored);
    indexOf(this.#kinds, object.kind).set(key, stored);
    if (object.kind !== 'Namespace') {
      indexOf(this.#namespaces, namespaceOf(object)).set(key, stored);
    }
    for (const ip of ownedAddresses(object)) this.#addresses.set(ip, key);
  }

  #delete(key: string): void {
    const stored = this.#objects.get(key);
    if (stored === undefined) return;
    const { object } = stored;
    this.#release(object, key);
    this.#objects.delete(key);
    this.#kinds.get(object.kind)?.delete(key);
    const namespace = this.#namespaces.get(namespaceOf(object));
    namespace?.delete(key);
    if (namespace?.size === 0) this.#namespaces.delete(namespaceOf(object));
  }

  #release(object: KubeObject, key: string): void {
    for (const ip of ownedAddresses(object)) {
      if (this.#addresses.get(ip) === key) this.#addresses.delete(ip);
    }
  }
}

function indexOf<Key>(
  index: Map<Key, Map<string, StoredObject>>,
  key: Key,
): Map<string, StoredObject> {
  const found = index.get(key);
  if (found !== undefined) return found;
  const created = new Map<string, StoredObject>();
  index.set(key, created);
  return created;
}

/** Changes under consideration, over a state or another draft. Dropping it undoes them. */
export class Draft implements StateView {
  readonly #base: StateView;
  readonly #objects = new Map<string, StoredObject | null>();
  readonly #addresses = new Map<string, string | null>();
  readonly #files = new Map<string, FileRecord | null>();
  readonly #changes: StateChange[] = [];

  constructor(base: StateView) {
    this.#base = base;
  }

  /** What was changed, in order. */
  get changes(): readonly StateChange[] {
    return this.#changes;
  }

  get(key: string): StoredObject | undefined {
    const own = this.#objects.get(key);
    return own === undefined ? this.#base.get(key) : (own ?? undefined);
  }

  *inNamespace(namespace: string): Iterable<StoredObject> {
    for (const stored of this.#base.inNamespace(namespace)) {
      if (!this.#objects.has(keyOf(stored.object))) yield stored;
    }
    for (const stored of this.#objects.values()) {
      const inside = stored !== null && stored.object.kind !== 'Namespace';
      if (inside && namespaceOf(stored.object) === namespace) yield stored;
    }
  }

  addressOwner(ip: string): string | undefined {
    const own = this.#addresses.get(ip);
    return own === undefined ? this.#base.addressOwner(ip) : (own ?? undefined);
  }

  file(name: string): FileRecord | undefined {
    const own = this.#files.get(name);
    return own === undefined ? this.#base.file(name) : (own ?? undefined);
  }

  put(object: KubeObject, file: string | null): void {
    const key = keyOf(object);
    this.#release(key);
    this.#objects.set(key, { object, file });
    for (const ip of ownedAddresses(object)) this.#addresses.set(ip, key);
    this.#changes.push({ op: 'put', object, file });
  }

  delete(key: string): void {
    this.#release(key);
    this.#objects.set(key, null);
    this.#changes.push({ op: 'delete', key });
  }

  setFile(name: string, record: FileRecord | null): void {
    this.#files.set(name, record);
    this.#changes.push({ op: 'file', name, record });
  }

  /** Takes over what another draft, made over this one, changed. */
  merge(changes: readonly StateChange[]): void {
    for (const change of changes) {
      if (change.op === 'put') this.put(change.object, change.file);
      else if (change.op === 'delete') this.delete(change.key);
      else this.setFile(change.name, change.record);
    }
  }

  #release(key: string): void {
    const before = this.get(key);
    if (before === undefined) return;
    for (const ip of ownedAddresses(before.object)) {
      if (this.addressOwner(ip) === key) this.#addresses.set(ip, null);
    }
  }
}
