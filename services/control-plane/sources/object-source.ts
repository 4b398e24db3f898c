import type { Kind, KubeObject, ObjectOf } from '../manifests/kinds.ts';
import type { StoreListener } from '../store/object-store.ts';

/** Objects, for reading. */
export interface ObjectView {
  /** Number of objects of a kind. */
  count(kind: Kind): number;
  /** All objects of a kind. */
  ofKind<K extends Kind>(kind: K): Iterable<ObjectOf<K>>;
  /** The object of a kind; undefined when there is none. */
  object<K extends Kind>(kind: K, namespace: string, name: string): ObjectOf<K> | undefined;
  /** The object that holds an address of its own: a cluster IP or an allocated address. */
  addressHolder(ip: string): KubeObject | undefined;
}

/** Where the objects of the mesh come from. */
export interface ObjectSource {
  /** The current objects. */
  readonly objects: ObjectView;
  /** True while the objects hold only a part of a change that belongs together. */
  readonly publishing: boolean;
  /** Calls `listener` with each change, after it is in {@link objects}; the result unsubscribes. */
  onCommit(listener: StoreListener): () => void;
  /** Resolves once the objects are complete. Nothing is served before. */
  synced(): Promise<void>;
}
