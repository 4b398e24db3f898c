/** Turns untrusted documents into typed objects, or into problems that name place and reason. */
import { MAX_DOCUMENTS, MAX_PROBLEMS } from '../limits.ts';
import { KINDS, isKind } from './kinds.ts';
import type { KubeObject } from './kinds.ts';
import { isObject, joinPath, validateObject } from './validate.ts';

/** One received document: its source, its index there, and its content. */
export interface ManifestDocument {
  readonly source: string;
  readonly index: number;
  readonly object: unknown;
}

/** Why a document is refused; `path` as in `spec.ports[0].port`, empty for the document as a whole. */
export interface ManifestProblem {
  readonly source: string;
  readonly index: number;
  readonly path: string;
  readonly reason: string;
}

/** A valid object and its place; `path` leads into a List. */
export interface ParsedManifest {
  readonly source: string;
  readonly index: number;
  readonly path: string;
  readonly object: KubeObject;
}

/** The content of a batch of documents. With problems it must not be used. */
export interface ParsedBatch {
  readonly manifests: readonly ParsedManifest[];
  readonly problems: readonly ManifestProblem[];
}

/** Checks every document, and every item of a List. Reports at most {@link MAX_PROBLEMS} problems. */
export function parseDocuments(documents: readonly ManifestDocument[]): ParsedBatch {
  const manifests: ParsedManifest[] = [];
  const problems: ManifestProblem[] = [];
  for (const document of documents) {
    parseDocument(document, '', document.object, { manifests, problems });
  }
  if (manifests.length > MAX_DOCUMENTS) {
    problems.push({
      source: documents[0]?.source ?? '',
      index: 0,
      path: '',
      reason: `more than ${MAX_DOCUMENTS} objects at once`,
    });
  }
  return { manifests, problems: problems.slice(0, MAX_PROBLEMS) };
}

function parseDocument(
  document: ManifestDocument,
  path: string,
  value: unknown,
  out: { manifests: ParsedManifest[]; problems: ManifestProblem[] },
): void {
  const { source, index } = document;
  const refuse = (field: string, reason: string): void => {
    out.problems.push({ source, index, path: joinPath(path, field), reason });
  };
  if (!isObject(value)) {
    refuse('', 'must be an object with apiVersion and kind');
    return;
  }
  const items = listItems(value);
  if (items !== null) {
    for (const [item, content] of items.entries()) {
      parseDocument(document, joinPath(path, `items[${item}]`), content, out);
    }
    return;
  }
  const kind = value['kind'];
  if (typeof kind !== 'string') {
    refuse('kind', 'is required');
    return;
  }
  if (!isKind(kind)) {
    refuse('kind', `unknown kind ${JSON.stringify(kind)}, must be one of ${KINDS.join(', ')}`);
    return;
  }
  const { object, problems } = validateObject(kind, value);
  if (object !== null) out.manifests.push({ source, index, path, object });
  for (const problem of problems) refuse(problem.path, problem.reason);
}

/** The items of a List of Kubernetes; null for any other value. */
export function listItems(value: unknown): readonly unknown[] | null {
  if (!isObject(value)) return null;
  const { kind, items } = value;
  return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items) ? items : null;
}
