/** Reads the bytes of a manifest file or of a request as checked objects. The time grows with the number of bytes. */
import * as z from 'zod';
import { sha256Hex } from '../../../lib/digest/sha256.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { parseManifestText } from '../../../lib/kube/manifest-text.ts';
import { parseDocuments } from './parse.ts';
import type { ManifestDocument, ManifestProblem, ParsedManifest } from './parse.ts';
import { parseReferences } from './references.ts';
import type { ManifestReference } from './references.ts';

/** The bytes to read: a file, or the body of a request to apply or to delete. */
export type ReadTask =
  | {
      readonly form: 'file';
      readonly path: string;
      readonly bytes: Uint8Array;
      /** Content with this hash is not parsed. */
      readonly knownHash: string | null;
    }
  | { readonly form: 'apply' | 'delete'; readonly bytes: Uint8Array };

/** The result of a task, without the objects. */
export interface ReadSummary {
  /** SHA-256 of the text of a file; empty for a request. */
  readonly hash: string;
  /** With problems the objects must not be used. */
  readonly problems: readonly ManifestProblem[];
  /** Why the body is not a request; null when it is one. */
  readonly malformed: string | null;
}

/** The result of a task: objects, or references for a request to delete. */
export interface ReadManifests extends ReadSummary {
  readonly items: readonly (ParsedManifest | ManifestReference)[];
}

const batch = z.strictObject({
  documents: z.array(
    z.strictObject({ source: z.string(), index: z.int().min(0), object: z.unknown() }),
  ),
});

const NOTHING: ReadManifests = { hash: '', problems: [], malformed: null, items: [] };

/** Runs a task. Throws nothing; the result holds the problems of the bytes. */
export function readManifests(task: ReadTask): ReadManifests {
  const text = Buffer.from(task.bytes.buffer, task.bytes.byteOffset, task.bytes.byteLength);
  return task.form === 'file'
    ? readFileText(task.path, text.toString('utf8'), task.knownHash)
    : readBody(task.form, text.toString('utf8'));
}

function readFileText(path: string, text: string, knownHash: string | null): ReadManifests {
  const hash = sha256Hex(text);
  if (hash === knownHash) return { ...NOTHING, hash };
  const { documents, problems } = parseManifestText(path, text);
  if (problems.length > 0) return { ...NOTHING, hash, problems };
  const parsed = parseDocuments(documents);
  return { ...NOTHING, hash, problems: parsed.problems, items: parsed.manifests };
}

function readBody(form: 'apply' | 'delete', text: string): ReadManifests {
  let documents: readonly ManifestDocument[];
  try {
    const parsed = batch.safeParse(JSON.parse(text));
    if (!parsed.success) {
      const issue = parsed.error.issues[0];
      const malformed = `body: ${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}`;
      return { ...NOTHING, malformed };
    }
    ({ documents } = parsed.data);
  } catch (error) {
    return { ...NOTHING, malformed: `the body is not JSON: ${errorText(error)}` };
  }
  if (form === 'apply') {
    const { manifests, problems } = parseDocuments(documents);
    return { ...NOTHING, problems, items: manifests };
  }
  const { references, problems } = parseReferences(documents);
  return { ...NOTHING, problems, items: references };
}
