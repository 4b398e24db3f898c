/** Turns untrusted documents into typed objects, or into problems that name place and reason. */
import type { z } from 'zod';
import { MAX_DOCUMENTS, MAX_PROBLEMS } from '../limits.ts';
import { KINDS, isKind, kindSchemas } from './kinds.ts';
import type { KubeObject } from './kinds.ts';

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
  const result = kindSchemas[kind].safeParse(withoutNulls(value));
  if (result.success) {
    out.manifests.push({ source, index, path, object: result.data });
    return;
  }
  for (const issue of result.error.issues) reportIssue(issue, refuse);
}

/** The items of a List of Kubernetes; null for any other value. */
export function listItems(value: unknown): readonly unknown[] | null {
  if (!isObject(value)) return null;
  const { kind, items } = value;
  return typeof kind === 'string' && kind.endsWith('List') && Array.isArray(items) ? items : null;
}

/** Turns one schema issue into refusals; an unknown field is named by its own path. */
function reportIssue(
  issue: z.core.$ZodIssue,
  refuse: (path: string, reason: string) => void,
): void {
  const path = issue.path.reduce<string>(appendPart, '');
  switch (issue.code) {
    case 'unrecognized_keys':
      for (const key of issue.keys) refuse(appendPart(path, key), 'unknown field');
      return;
    case 'invalid_key':
      refuse(path, issue.issues[0]?.message ?? issue.message);
      return;
    case 'invalid_value': {
      const values = issue.values.map((value) => JSON.stringify(value)).join(', ');
      const own = !issue.message.startsWith('Invalid');
      refuse(
        path,
        own ? issue.message : `must be ${issue.values.length > 1 ? 'one of ' : ''}${values}`,
      );
      return;
    }
    default:
      refuse(path, plainReason(issue.message));
  }
}

function plainReason(message: string): string {
  if (message.endsWith('received undefined')) return 'is required';
  return message.replace(
    /^Invalid input: expected (\S+), received (\S+)$/,
    'must be of type $1, not $2',
  );
}

/** Joins two written paths. */
function joinPath(path: string, rest: string): string {
  if (path === '' || rest === '') return `${path}${rest}`;
  return rest.startsWith('[') ? `${path}${rest}` : `${path}.${rest}`;
}

/** Adds one key or index to a written path; a key that is not a plain word is quoted. */
function appendPart(path: string, part: PropertyKey): string {
  if (typeof part === 'number') return `${path}[${part}]`;
  const key = String(part);
  return joinPath(path, /^[\w-]+$/.test(key) ? key : `[${JSON.stringify(key)}]`);
}

/** Kubernetes treats a null field as absent. */
function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, field]) => field !== null)
      .map(([name, field]) => [name, withoutNulls(field)]),
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
