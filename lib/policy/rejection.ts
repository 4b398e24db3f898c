import * as z from 'zod/mini';
import './schema-messages.ts';
import { REASON_CHARS_MAX } from './limits.ts';
import type { Reach } from './reach.ts';

/** A row of the `rejections` table, JSON under `<type>/<name>`: a resource the ingester could not decode. */
export const rejectionSchema = z.object({
  /** Type URL of the resource. */
  type: z.string().check(z.minLength(1)),
  /** Its xDS name. */
  name: z.string().check(z.minLength(1)),
  reason: z.string(),
  /** The workloads that a policy binds by its scope, as {@link Reach}; rows of an earlier version lack it. */
  reach: z.optional(z.nullable(z.string())),
  /** ISO 8601. */
  at: z.string(),
});

/** See {@link rejectionSchema}. */
export type Rejection = z.infer<typeof rejectionSchema>;

/** A rejected policy: its key, and why it was rejected. */
export interface RejectedPolicy {
  readonly key: string;
  readonly reason: string;
  /** The workloads that it was to bind by its scope; left out where an earlier version wrote the row. */
  readonly reach?: Reach;
  /** ISO 8601; empty where the row has no time. */
  readonly at: string;
}

const POLICY_TYPE = 'istio.security.Authorization';
const TYPE_IN_ROW_KEY = `${POLICY_TYPE}/`;

/**
 * Reads a row of `rejections`; null when it is about another type. An unreadable row counts by its key: to overlook the rejection
 * of a policy would leave the policy unenforced.
 */
export function readPolicyRejection(rowKey: string, value: Uint8Array): RejectedPolicy | null {
  const at = rowKey.indexOf(TYPE_IN_ROW_KEY);
  const parsed = rejectionSchema.safeParse(parseJson(value));
  if (parsed.success) {
    const { type, name, reason, reach, at: when } = parsed.data;
    if (!type.endsWith(POLICY_TYPE)) return null;
    const told = { key: name, reason: reason.slice(0, REASON_CHARS_MAX), at: when };
    return reach === undefined ? told : { ...told, reach };
  }
  if (at === -1) return null;
  const key = rowKey.slice(at + TYPE_IN_ROW_KEY.length);
  if (key === '') return null;
  const reason = 'rejected; the row that says why is unreadable';
  return { key, reason, at: '' };
}

function parseJson(value: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(value));
  } catch {
    // Not JSON: the schema says so in its place.
    return null;
  }
}
