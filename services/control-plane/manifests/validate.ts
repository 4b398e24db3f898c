/** The one check of an object: of a manifest, for a status, and of an admission webhook. Pure. */
import type * as z from 'zod';
import { kindSchemas } from './kinds.ts';
import type { Kind, KubeObject } from './kinds.ts';

/** A fault of an object; `path` as in `spec.ports[0].port`, empty for the object as a whole. */
export interface FieldProblem {
  readonly path: string;
  readonly reason: string;
}

/** The reason of a field that the control plane does not know. */
export const UNKNOWN_FIELD = 'unknown field';

/** The object as its kind's schema parses it, or null with every problem. A null field counts as absent, as in Kubernetes. */
export function validateObject(
  kind: Kind,
  value: unknown,
): { readonly object: KubeObject | null; readonly problems: readonly FieldProblem[] } {
  const result = kindSchemas[kind].safeParse(withoutNulls(value));
  if (result.success) return { object: result.data, problems: [] };
  const problems: FieldProblem[] = [];
  for (const issue of result.error.issues) {
    reportIssue(issue, (path, reason) => problems.push({ path, reason }));
  }
  return { object: null, problems };
}

/** Turns one schema issue into refusals; an unknown field is named by its own path. */
function reportIssue(
  issue: z.core.$ZodIssue,
  refuse: (path: string, reason: string) => void,
): void {
  const path = issue.path.reduce<string>(appendPart, '');
  switch (issue.code) {
    case 'unrecognized_keys':
      for (const key of issue.keys) refuse(appendPart(path, key), UNKNOWN_FIELD);
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
export function joinPath(path: string, rest: string): string {
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

/** True for an object that is no list. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
