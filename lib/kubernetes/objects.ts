/** The parts of Kubernetes' JSON that every resource shares. */
import { MeshError } from '../errors/mesh-error.ts';

type Json = Readonly<Record<string, unknown>>;

/** An event of a watch. */
export interface WatchEvent {
  /** `put` stands for added and modified. */
  readonly type: 'put' | 'delete' | 'bookmark' | 'error';
  readonly object: unknown;
  /** The version after the event; empty for an error. */
  readonly version: string;
  /** True for the bookmark after the objects of a streamed list. */
  readonly initialEnd: boolean;
}

const TYPES: ReadonlyMap<unknown, WatchEvent['type']> = new Map([
  ['ADDED', 'put'],
  ['MODIFIED', 'put'],
  ['DELETED', 'delete'],
  ['BOOKMARK', 'bookmark'],
  ['ERROR', 'error'],
] as const);

const INITIAL_END = 'k8s.io/initial-events-end';

/** Reads an event. Throws KUBERNETES_UNAVAILABLE for anything else: the stream cannot be followed any further. */
export function watchEvent(line: unknown, what: string): WatchEvent {
  const { type: word, object } = record(line) ?? {};
  const type = TYPES.get(word);
  if (type === undefined) throw unreadable(`an event of ${what} has the type ${String(word)}`);
  if (type === 'error') return { type, object, version: '', initialEnd: false };
  const metadata = record(record(object)?.['metadata']);
  const version = metadata?.['resourceVersion'];
  if (typeof version !== 'string') throw unreadable(`an event of ${what} has no resourceVersion`);
  const initialEnd = record(metadata?.['annotations'])?.[INITIAL_END] === 'true';
  return { type, object, version, initialEnd };
}

/** Readers of `metadata`. */
export const objectMeta = {
  /** Returns `namespace/name`, or the name of an object without a namespace. Throws KUBERNETES_UNAVAILABLE without a name. */
  key(object: unknown, what: string): string {
    const { name, namespace } = record(record(object)?.['metadata']) ?? {};
    if (typeof name !== 'string') throw unreadable(`an object of ${what} has no name`);
    return typeof namespace === 'string' && namespace !== '' ? `${namespace}/${name}` : name;
  },

  /** Returns the version of a list and the token of its next page. Throws KUBERNETES_UNAVAILABLE when it is no list. */
  list(
    list: unknown,
    what: string,
  ): { readonly resourceVersion: string; readonly continue?: string | undefined } {
    const { resourceVersion, continue: next } = record(record(list)?.['metadata']) ?? {};
    if (typeof resourceVersion !== 'string') throw unreadable(`the answer for ${what} is no list`);
    return { resourceVersion, continue: typeof next === 'string' ? next : undefined };
  },
};

function record(value: unknown): Json | undefined {
  return typeof value === 'object' && value !== null ? (value as Json) : undefined;
}

function unreadable(why: string): MeshError {
  return new MeshError('KUBERNETES_UNAVAILABLE', why);
}

/**
 * True when a version is older than another of the same resource. etcd counts versions up, so that an older one tells that its store
 * was replaced or restored. Versions that are no numbers cannot be compared.
 */
export function isOlderVersion(version: string, than: string): boolean {
  const number = /^[1-9]\d*$/;
  if (!number.test(version) || !number.test(than)) return false;
  return version.length === than.length ? version < than : version.length < than.length;
}
