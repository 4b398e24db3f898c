/** The objects of the mesh and their manifest files, in memory, and drafts of changes. */
import { keyOf, namespaceOf, objectKey } from '../manifests/kinds.ts';
import type { Kind, KubeObject, ObjectOf } from '../manifests/kinds.ts';
import { ownedAddresses } from './addresses.ts';

/** An object and the manifest file it belongs to; null for an object of the API. */
export interface StoredObject {
  readonly object: KubeObject;
  readonly file: string | null;
}

/** One step of a transaction. The hash of a manifest file is that of its last applied content; null forgets the file. */
export type StateChange =
  | { readonly op: 'put'; readonly object: KubeObject; readonly file: string | null }
  | { readonly op: 'delete'; readonly key: string }
  | { readonly op: 'file'; readonly name: string; readonly hash: string | null };

/** Read access, to the state or to a draft over it. */
export interface StateView {
  /** Number of objects. */
  readonly size: number;
  get(key: string): StoredObject | undefined;
  /** Objects in the namespace, without the Namespace itself. */
  inNamespace(namespace: string): Iterable<StoredObject>;
  /** Objects that belong to the manifest file. */
  ofFile(file: string): Iterable<StoredObject>;
  /** The holder of an allocated address: the key of a Service or ServiceEntry. */
  addressOwner(ip: string): string | undefined;
}

/** The committed objects. A change replaces an object and never modifies it. */
export class CommittedState implements StateView {
  readonly #objects = new Map<string, StoredObject>();
  readonly #namespaces = new Map<string, Map<string, StoredObject>>();
  readonly #kinds = new Map<Kind, Map<string, StoredObject>>();
  readonly #addresses = new Map<string, string>();
  readonly #ofFiles = new Map<string, Map<string, StoredObject>>();
  readonly #hashes = new Map<string, string>();

  get size(): number {
    return this.#objects.size;
  }

  get(key: string): StoredObject | undefined {
    return this.#objects.get(key);
  }

  inNamespace(namespace: string): Iterable<StoredObject> {
    return this.#namespaces.get(namespace)?.values() ?? [];
  }

  ofFile(file: string): Iterable<StoredObject> {
    return this.#ofFiles.get(file)?.values() ?? [];
  }

  addressOwner(ip: string): string | undefined {
    return this.#addresses.get(ip);
  }

  /** The object that holds an address of its own. */
  addressHolder(ip: string): KubeObject | undefined {
    const owner = this.#addresses.get(ip);
    return owner === undefined ? undefined : this.#objects.get(owner)?.object;
  }

  /** The hash of a manifest file's last applied content. */
  fileHash(name: string): string | undefined {
    return this.#hashes.get(name);
  }

  /** Names of the applied manifest files. */
  fileNames(): Iterable<string> {
    return this.#hashes.keys();
  }

  /** The object of a kind; undefined when there is none. */
  object<K extends Kind>(kind: K, namespace: string, name: string): ObjectOf<K> | undefined {
    return this.#objects.get(objectKey(kind, namespace, name))?.object as ObjectOf<K> | undefined;
  }

  /** All objects of a kind, in the order of their creation. */
  *ofKind<K extends Kind>(kind: K): Iterable<ObjectOf<K>> {
    for (const stored of this.#kinds.get(kind)?.values() ?? []) yield stored.object as ObjectOf<K>;
  }

  /** Number of objects of a kind. */
  count(kind: Kind): number {
    return this.#kinds.get(kind)?.size ?? 0;
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
        if (change.hash === null) this.#hashes.delete(change.name);
        else this.#hashes.set(change.name, change.hash);
    }
  }

  #put(object: KubeObject, file: string | null): void {
    const key = keyOf(object);
    const before = this.#objects.get(key);
    if (before !== undefined) this.#release(before, key, file);
    const stored = { object, file };
    this.#objects.set(key, stored);
    indexOf(this.#kinds, object.kind).set(key, stored);
    if (object.kind !== 'Namespace') {
      indexOf(this.#namespaces, namespaceOf(object)).set(key, stored);
    }
    if (file !== null) indexOf(this.#ofFiles, file).set(key, stored);
    for (const ip of ownedAddresses(object)) this.#addresses.set(ip, key);
  }

  #delete(key: string): void {
    const stored = this.#objects.get(key);
    if (stored === undefined) return;
    const { object } = stored;
    this.#release(stored, key, null);
    this.#objects.delete(key);
    this.#kinds.get(object.kind)?.delete(key);
    dropFrom(this.#namespaces, namespaceOf(object), key);
  }

  /** Removes the object's addresses, and its entry under its file unless `nextFile` is the same file. */
  #release({ object, file }: StoredObject, key: string, nextFile: string | null): void {
    if (file !== null && file !== nextFile) dropFrom(this.#ofFiles, file, key);
    for (const ip of ownedAddresses(object)) {
      if (this.#addresses.get(ip) === key) this.#addresses.delete(ip);
    }
  }
}

function dropFrom(index: Map<string, Map<string, StoredObject>>, group: string, key: string): void {
  const objects = index.get(group);
  objects?.delete(key);
  if (objects?.size === 0) index.delete(group);
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

/** Uncommitted changes over a state or another draft. Dropping the draft discards them. */
export class Draft implements StateView {
  readonly #base: StateView;
  readonly #objects = new Map<string, StoredObject | null>();
  readonly #addresses = new Map<string, string | null>();
  readonly #changes: StateChange[] = [];
  #size: number;

  constructor(base: StateView) {
    this.#base = base;
    this.#size = base.size;
  }

  /** The changes, in order. */
  get changes(): readonly StateChange[] {
    return this.#changes;
  }

  get size(): number {
    return this.#size;
  }

  get(key: string): StoredObject | undefined {
    const own = this.#objects.get(key);
    return own === undefined ? this.#base.get(key) : (own ?? undefined);
  }

  inNamespace(namespace: string): Iterable<StoredObject> {
    return this.#over(
      this.#base.inNamespace(namespace),
      ({ object }) => object.kind !== 'Namespace' && namespaceOf(object) === namespace,
    );
  }

  ofFile(file: string): Iterable<StoredObject> {
    return this.#over(this.#base.ofFile(file), (stored) => stored.file === file);
  }

  addressOwner(ip: string): string | undefined {
    const own = this.#addresses.get(ip);
    return own === undefined ? this.#base.addressOwner(ip) : (own ?? undefined);
  }

  put(object: KubeObject, file: string | null): void {
    const key = keyOf(object);
    if (!this.#release(key)) this.#size += 1;
    this.#objects.set(key, { object, file });
    for (const ip of ownedAddresses(object)) this.#addresses.set(ip, key);
    this.#changes.push({ op: 'put', object, file });
  }

  delete(key: string): void {
    if (this.#release(key)) this.#size -= 1;
    this.#objects.set(key, null);
    this.#changes.push({ op: 'delete', key });
  }

  /** Stores the hash of a manifest file's applied content; null forgets the file. */
  setFileHash(name: string, hash: string | null): void {
    this.#changes.push({ op: 'file', name, hash });
  }

  /** The base's objects that this draft did not change, then this draft's objects. */
  *#over(
    base: Iterable<StoredObject>,
    belongs: (stored: StoredObject) => boolean,
  ): Iterable<StoredObject> {
    for (const stored of base) if (!this.#objects.has(keyOf(stored.object))) yield stored;
    for (const stored of this.#objects.values()) {
      if (stored !== null && belongs(stored)) yield stored;
    }
  }

  /** Releases the addresses of an object; false when there is no such object. */
  #release(key: string): boolean {
    const before = this.get(key);
    if (before === undefined) return false;
    for (const ip of ownedAddresses(before.object)) {
      if (this.addressOwner(ip) === key) this.#addresses.set(ip, null);
    }
    return true;
  }
}
