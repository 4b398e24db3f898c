/** The rows of the store's file, and the changes of the state that they stand for. */
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { isKind, keyOf } from '../manifests/kinds.ts';
import type { KubeObject } from '../manifests/kinds.ts';
import type { StateChange } from './state.ts';

/**
 * An object under its key, with its JSON as content; or a manifest file under `File/<name>`, with its hash.
 * `file` is the manifest file an object belongs to. A null content deletes the entry.
 */
export interface StoreRow {
  readonly key: string;
  readonly file: string | null;
  readonly content: string | null;
}

const FILE_PREFIX = 'File/';

/** The row of a change. */
export function rowOf(change: StateChange): StoreRow {
  switch (change.op) {
    case 'put':
      return {
        key: keyOf(change.object),
        file: change.file,
        content: JSON.stringify(change.object),
      };
    case 'delete':
      return { key: change.key, file: null, content: null };
    case 'file':
      return { key: `${FILE_PREFIX}${change.name}`, file: null, content: change.hash };
  }
}

/** The change that a row stands for. Throws STATE_INVALID for an unknown kind. */
export function changeOf({ key, file, content }: StoreRow): StateChange {
  if (key.startsWith(FILE_PREFIX)) {
    return { op: 'file', name: key.slice(FILE_PREFIX.length), hash: content };
  }
  const object = JSON.parse(content ?? 'null') as KubeObject;
  if (!isKind(object.kind)) {
    throw new MeshError('STATE_INVALID', `the store holds ${key} of an unknown kind`);
  }
  return { op: 'put', object, file };
}
