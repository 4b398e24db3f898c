/**
 * The changes that callers may ask of the state, each on a draft: it happens whole or not at all. Pure. A change of many
 * objects is a series of steps, one for each object, which the caller runs to their end in its own time.
 */
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { MAX_PROBLEMS } from '../limits.ts';
import { isNamespaced, keyOf, nameOf, namespaceOf, objectKey } from '../manifests/kinds.ts';
import type { KubeObject, ObjectName } from '../manifests/kinds.ts';
import type { ManifestProblem, ParsedManifest } from '../manifests/parse.ts';
import type { ManifestReference } from '../manifests/references.ts';
import { ManifestRejection } from '../manifests/rejection.ts';
import { admit } from './admission.ts';
import type { AdmissionContext } from './admission.ts';
import { FieldRefusal } from './field-refusal.ts';
import type { Draft } from './state.ts';

/** What became of one object of a batch. */
export interface AppliedObject extends ObjectName {
  readonly result: 'created' | 'configured' | 'unchanged';
}

/** Namespaces that are always there: the one manifests without a namespace go to, and the mesh's root. */
export interface FixedNamespaces {
  readonly names: readonly string[];
}

/** The steps of a change, and what comes of it. */
export type Steps<T> = Generator<void, T>;

/**
 * Applies a batch. `file` is the manifest file it comes from, null for the API. Throws
 * {@link ManifestRejection} with every problem; the draft is then to be dropped.
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
  // Namespaces first, whatever their place in the batch: the others live in them.
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

/** Deletes the objects that are there, and what is in a deleted namespace. Throws {@link ManifestRejection}. */
export function* deleteManifests(
  draft: Draft,
  references: readonly ManifestReference[],
  fixed: FixedNamespaces,
): Steps<{ deleted: ObjectName[]; missing: ObjectName[] }> {
  const deleted = new Map<string, ObjectName>();
  const missing: ObjectName[] = [];
  const problems: ManifestProblem[] = [];
  for (const { source, index, name } of references) {
    const key = objectKey(name.kind, name.namespace, name.name);
    if (isFixed(name, fixed)) {
      problems.push({ source, index, path: 'metadata.name', reason: 'this namespace must stay' });
    } else if (draft.get(key) !== undefined) {
      yield* deleteObject(draft, name, deleted);
      // Gone with its namespace in this very batch is not missing.
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

function isFixed(name: ObjectName, fixed: FixedNamespaces): boolean {
  return name.kind === 'Namespace' && fixed.names.includes(name.name);
}

/**
 * Makes the objects of a file what its new content says; those it no longer defines are deleted unless the
 * API took them away or another file has them. Throws {@link ManifestRejection}.
 */
export function* applyFile(
  draft: Draft,
  file: { readonly name: string; readonly hash: string },
  manifests: readonly ParsedManifest[],
  context: AdmissionContext & FixedNamespaces,
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

/** Deletes what came from a file that is gone. */
export function* removeFile(
  draft: Draft,
  name: string,
  fixed: FixedNamespaces,
): Steps<ObjectName[]> {
  const deleted = yield* deleteOwned(draft, name, new Set(), fixed);
  draft.setFileHash(name, null);
  return deleted;
}

/** Deletes the objects of a file but those under `kept`. */
function* deleteOwned(
  draft: Draft,
  file: string,
  kept: ReadonlySet<string>,
  fixed: FixedNamespaces,
): Steps<ObjectName[]> {
  const deleted = new Map<string, ObjectName>();
  for (const { object } of draft.ofFile(file)) {
    yield;
    if (kept.has(keyOf(object))) continue;
    const name = nameOf(object);
    if (isFixed(name, fixed)) draft.put(object, null);
    else yield* deleteObject(draft, name, deleted);
  }
  return [...deleted.values()];
}
