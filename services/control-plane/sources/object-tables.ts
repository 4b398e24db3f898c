import { nameKey } from '../mapping/objects.ts';
import type { Kind, KubeObject, ObjectOf } from '../manifests/kinds.ts';
import { ownedAddresses } from '../store/addresses.ts';
import type { ObjectView } from './object-source.ts';

/** The objects of an API server by kind, and by `namespace/name` or `name`. A change replaces an object and never modifies it. */
export class ObjectTables implements ObjectView {
  readonly #kinds = new Map<Kind, Map<string, KubeObject>>();
  readonly #addresses = new Map<string, KubeObject>();

  count(kind: Kind): number {
    return this.#kinds.get(kind)?.size ?? 0;
  }

  *ofKind<K extends Kind>(kind: K): Iterable<ObjectOf<K>> {
    for (const object of this.#kinds.get(kind)?.values() ?? []) yield object as ObjectOf<K>;
  }

  object<K extends Kind>(kind: K, namespace: string, name: string): ObjectOf<K> | undefined {
    return this.get(kind, nameKey(kind, namespace, name)) as ObjectOf<K> | undefined;
  }

  addressHolder(ip: string): KubeObject | undefined {
    return this.#addresses.get(ip);
  }

  /** The object under a key; undefined when there is none. */
  get(kind: Kind, key: string): KubeObject | undefined {
    return this.#kinds.get(kind)?.get(key);
  }

  /** The keys of a kind. */
  keys(kind: Kind): Iterable<string> {
    return this.#kinds.get(kind)?.keys() ?? [];
  }

  /** Replaces an object; null removes it. */
  set(kind: Kind, key: string, object: KubeObject | null): void {
    let objects = this.#kinds.get(kind);
    if (objects === undefined) {
      objects = new Map();
      this.#kinds.set(kind, objects);
    }
    const before = objects.get(key);
    if (before !== undefined) this.#release(before);
    if (object === null) {
      objects.delete(key);
      return;
    }
    objects.set(key, object);
    for (const ip of ownedAddresses(object)) this.#addresses.set(ip, object);
  }

  #release(object: KubeObject): void {
    for (const ip of ownedAddresses(object)) {
      if (this.#addresses.get(ip) === object) this.#addresses.delete(ip);
    }
  }
}
