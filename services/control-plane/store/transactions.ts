/** The changes that callers may ask of the state, each on a draft: it happens whole or not at all. Pure. */
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

/**
 * Applies a batch. `file` is the manifest file it comes from, null for the API. Throws
 * {@link ManifestRejection} with every problem; the draft is then to be dropped.
 */
export function applyManifests(
  draft: Draft,
  manifests: readonly ParsedManifest[],
  file: string | null,
  context: AdmissionContext,
): AppliedObject[] {
  const problems: ManifestProblem[] = [];
  const seen = new Map<string, ParsedManifest>();
  const applied = new Map<ParsedManifest, AppliedObject>();
  // Namespaces first, whatever their place in the batch: the others live in them.
  const ordered = manifests.toSorted(
    (left, right) =>
      Number(isNamespaced(left.object.kind)) - Number(isNamespaced(right.object.kind)),
  );
  for (const manifest of ordered) {
    const twin = seen.get(keyOf(manifest.object));
    seen.set(keyOf(manifest.object), manifest);
    try {
      if (twin !== undefined) {
        throw new FieldRefusal('', `the same object is in ${twin.source}, document ${twin.index}`);
      }
      applied.set(manifest, applyOne(draft, manifest.object, file, context));
    } catch (error) {
      problems.push(problemOf(manifest, error));
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
export function deleteManifests(
  draft: Draft,
  references: readonly ManifestReference[],
  fixed: FixedNamespaces,
): { deleted: ObjectName[]; missing: ObjectName[] } {
  const deleted: ObjectName[] = [];
  const missing: ObjectName[] = [];
  const problems: ManifestProblem[] = [];
  for (const { source, index, name } of references) {
    if (isFixed(name, fixed)) {
      problems.push({ source, index, path: 'metadata.name', reason: 'this namespace must stay' });
    } else if (draft.get(objectKey(name.kind, name.namespace, name.name)) === undefined) {
      // Gone with its namespace in this very batch is not missing.
      if (!deleted.some((other) => sameName(other, name))) missing.push(name);
    } else {
      deleted.push(...deleteObject(draft, name));
    }
  }
  if (problems.length > 0) throw new ManifestRejection(problems);
  return { deleted, missing };
}

function deleteObject(draft: Draft, name: ObjectName): ObjectName[] {
  const deleted = [name];
  if (name.kind === 'Namespace') {
    for (const { object } of draft.inNamespace(name.name)) {
      draft.delete(keyOf(object));
      deleted.push(nameOf(object));
    }
  }
  draft.delete(objectKey(name.kind, name.namespace, name.name));
  return deleted;
}

function isFixed(name: ObjectName, fixed: FixedNamespaces): boolean {
  return name.kind === 'Namespace' && fixed.names.includes(name.name);
}

function sameName(left: ObjectName, right: ObjectName): boolean {
  return left.kind === right.kind && left.namespace === right.namespace && left.name === right.name;
}

/**
 * Makes the objects of a file what its new content says; those it no longer defines are deleted unless the
 * API took them away or another file has them. Throws {@link ManifestRejection}.
 */
export function applyFile(
  draft: Draft,
  file: { readonly name: string; readonly hash: string },
  manifests: readonly ParsedManifest[],
  context: AdmissionContext & FixedNamespaces,
): AppliedObject[] {
  const keys = manifests.map(({ object }) => keyOf(object));
  const dropped = (draft.file(file.name)?.keys ?? []).filter((key) => !keys.includes(key));
  deleteOwned(draft, file.name, dropped, context);
  const applied = applyManifests(draft, manifests, file.name, context);
  draft.setFile(file.name, { hash: file.hash, keys });
  return applied;
}

/** Deletes what came from a file that is gone. */
export function removeFile(draft: Draft, name: string, fixed: FixedNamespaces): ObjectName[] {
  const deleted = deleteOwned(draft, name, draft.file(name)?.keys ?? [], fixed);
  draft.setFile(name, null);
  return deleted;
}

function deleteOwned(
  draft: Draft,
  file: string,
  keys: readonly string[],
  fixed: FixedNamespaces,
): ObjectName[] {
  const deleted: ObjectName[] = [];
  for (const key of keys) {
    const stored = draft.get(key);
    if (stored === undefined || stored.file !== file) continue;
    const name = nameOf(stored.object);
    if (isFixed(name, fixed)) draft.put(stored.object, null);
    else deleted.push(...deleteObject(draft, name));
  }
  return deleted;
}
