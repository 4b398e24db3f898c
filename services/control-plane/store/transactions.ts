/**
 * The transactions of the store, each on a draft: a transaction happens whole or not at all. Pure. A transaction of many
 * objects is a generator with a step for each object, so that its caller decides when to let the event loop turn.
 */
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { MAX_PROBLEMS } from '../limits.ts';
import { isNamespaced, keyOf, nameOf, namespaceOf, objectKey } from '../manifests/kinds.ts';
import type { KubeObject, ObjectName } from '../manifests/kinds.ts';
import type { ManifestProblem, ParsedManifest } from '../manifests/parse.ts';
import type { ManifestReference } from '../manifests/references.ts';
import { FieldRefusal, ManifestRejection } from '../manifests/rejection.ts';
import { admit } from './admission.ts';
import type { AdmissionContext } from './admission.ts';
import type { Draft } from './state.ts';

/** The result for one object of a batch. */
export interface AppliedObject extends ObjectName {
  readonly result: 'created' | 'configured' | 'unchanged';
}

/** The steps of a transaction, and its result. */
export type Steps<T> = Generator<void, T>;

/** Makes the namespaces that always exist, where they are missing. */
export function ensureNamespaces(draft: Draft, context: AdmissionContext): void {
  for (const name of context.fixedNamespaces) {
    if (draft.get(objectKey('Namespace', '', name)) !== undefined) continue;
    const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name } } as const;
    draft.put(admit(draft, object, context), null);
  }
}

/**
 * Applies a batch. `file` is its manifest file, null for the API. Throws {@link ManifestRejection} with every problem; the
 * caller must then drop the draft.
 */
export function* applyManifests(
  draft: Draft,
  manifests: readonly ParsedManifest[],
  file: string | null,
  context: AdmissionContext,
): Steps<AppliedObject[]> {
  const problems: ManifestProblem[] = [];
  const seen = new Map<string, ParsedManifest>();
  const applied = new Map<ParsedManifest, AppliedObject>();
  // Namespaces come first, at any place in the batch, because the other objects need them.
  for (const namespaced of [false, true]) {
    for (const manifest of manifests) {
      if (isNamespaced(manifest.object.kind) !== namespaced) continue;
      const key = keyOf(manifest.object);
      const twin = seen.get(key);
      seen.set(key, manifest);
      try {
        if (twin !== undefined) {
          throw new FieldRefusal(
            '',
            `the same object is in ${twin.source}, document ${twin.index}`,
          );
        }
        applied.set(manifest, applyOne(draft, manifest.object, file, context));
      } catch (error) {
        problems.push(problemOf(manifest, error));
      }
      yield;
    }
  }
  if (problems.length > 0) throw new ManifestRejection(problems.slice(0, MAX_PROBLEMS));
  return manifests.map((manifest) => present(applied.get(manifest), 'each was applied'));
}

function applyOne(
  draft: Draft,
  object: KubeObject,
  file: string | null,
  context: AdmissionContext,
): AppliedObject {
  const before = draft.get(keyOf(object));
  if (isNamespaced(object.kind)) {
    const namespace = namespaceOf(object);
    if (draft.get(objectKey('Namespace', '', namespace)) === undefined) {
      throw new FieldRefusal('metadata.namespace', `there is no namespace ${namespace}`);
    }
  }
  const owner = before?.file ?? null;
  if (file !== null && owner !== null && owner !== file) {
    throw new FieldRefusal('', `the object is already defined in ${owner}`);
  }
  const next = admit(draft, object, context);
  const name = nameOf(next);
  if (before !== undefined && next === before.object && (file === null || owner === file)) {
    return { ...name, result: 'unchanged' };
  }
  draft.put(next, file ?? owner);
  if (before === undefined) return { ...name, result: 'created' };
  return { ...name, result: next === before.object ? 'unchanged' : 'configured' };
}

function problemOf(manifest: ParsedManifest, error: unknown): ManifestProblem {
  const { source, index, path } = manifest;
  if (error instanceof FieldRefusal) {
    const inside =
      path === '' || error.path === '' ? `${path}${error.path}` : `${path}.${error.path}`;
    return { source, index, path: inside, reason: error.message };
  }
  if (error instanceof MeshError && error.code === 'STATE_CONFLICT') {
    return { source, index, path, reason: error.message };
  }
  throw error;
}

/** Deletes the named objects and the content of a deleted namespace. Throws {@link ManifestRejection}. */
export function* deleteManifests(
  draft: Draft,
  references: readonly ManifestReference[],
  context: AdmissionContext,
): Steps<{ deleted: ObjectName[]; missing: ObjectName[] }> {
  const deleted = new Map<string, ObjectName>();
  const missing: ObjectName[] = [];
  const problems: ManifestProblem[] = [];
  for (const { source, index, name } of references) {
    const key = objectKey(name.kind, name.namespace, name.name);
    if (isFixed(name, context)) {
      problems.push({
        source,
        index,
        path: 'metadata.name',
        reason: 'this namespace cannot be deleted',
      });
    } else if (draft.get(key) !== undefined) {
      yield* deleteObject(draft, name, deleted);
      // An object deleted with its namespace in the same batch is not missing.
    } else if (!deleted.has(key)) missing.push(name);
    yield;
  }
  if (problems.length > 0) throw new ManifestRejection(problems);
  return { deleted: [...deleted.values()], missing };
}

function* deleteObject(
  draft: Draft,
  name: ObjectName,
  deleted: Map<string, ObjectName>,
): Steps<void> {
  const key = objectKey(name.kind, name.namespace, name.name);
  deleted.set(key, name);
  if (name.kind === 'Namespace') {
    for (const { object } of draft.inNamespace(name.name)) {
      draft.delete(keyOf(object));
      deleted.set(keyOf(object), nameOf(object));
      yield;
    }
  }
  draft.delete(key);
}

function isFixed(name: ObjectName, context: AdmissionContext): boolean {
  return name.kind === 'Namespace' && context.fixedNamespaces.includes(name.name);
}

/**
 * Applies the new content of a file, and deletes the objects of the file that the content no longer defines. Throws
 * {@link ManifestRejection}.
 */
export function* applyFile(
  draft: Draft,
  file: { readonly name: string; readonly hash: string },
  manifests: readonly ParsedManifest[],
  context: AdmissionContext,
): Steps<AppliedObject[]> {
  const keys = new Set<string>();
  for (const { object } of manifests) {
    keys.add(keyOf(object));
    yield;
  }
  yield* deleteOwned(draft, file.name, keys, context);
  const applied = yield* applyManifests(draft, manifests, file.name, context);
  draft.setFileHash(file.name, file.hash);
  return applied;
}

/** Deletes the objects of a file that was removed. */
export function* removeFile(
  draft: Draft,
  name: string,
  context: AdmissionContext,
): Steps<ObjectName[]> {
  const deleted = yield* deleteOwned(draft, name, new Set(), context);
  draft.setFileHash(name, null);
  return deleted;
}

/** Deletes the objects of a file, except those with a key in `kept`. */
function* deleteOwned(
  draft: Draft,
  file: string,
  kept: ReadonlySet<string>,
  context: AdmissionContext,
): Steps<ObjectName[]> {
  const deleted = new Map<string, ObjectName>();
  for (const { object } of draft.ofFile(file)) {
    yield;
    if (kept.has(keyOf(object))) continue;
    const name = nameOf(object);
    if (isFixed(name, context)) draft.put(object, null);
    else yield* deleteObject(draft, name, deleted);
  }
  return [...deleted.values()];
}
