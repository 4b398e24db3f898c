/** Encodes and decodes decision programs as rows of the `programs` table: JSON under the set's id. */
import * as z from 'zod/mini';
import './schema-messages.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { parseIp } from '../net/address.ts';
import type { PolicyProgram } from './model.ts';

const stringMatchSchema = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('exact'), value: z.string() }),
  z.strictObject({ kind: z.literal('prefix'), value: z.string() }),
  z.strictObject({ kind: z.literal('suffix'), value: z.string() }),
  z.strictObject({ kind: z.literal('presence') }),
]);
const stringsSchema = z.array(stringMatchSchema);
const accountsSchema = z.array(
  z.strictObject({ namespace: z.string(), serviceAccount: z.string() }),
);
const rangesSchema = z.array(
  z.strictObject({ address: z.string(), length: z.int().check(z.nonnegative()) }).check(
    z.superRefine((range, context) => {
      const problem = rangeProblem(range);
      if (problem !== null) context.addIssue({ code: 'custom', message: problem });
    }),
  ),
);
const portsSchema = z.array(z.int().check(z.minimum(0), z.maximum(65_535)));

const matchSchema = z.strictObject({
  namespaces: stringsSchema,
  notNamespaces: stringsSchema,
  serviceAccounts: accountsSchema,
  notServiceAccounts: accountsSchema,
  principals: stringsSchema,
  notPrincipals: stringsSchema,
  sourceIps: rangesSchema,
  notSourceIps: rangesSchema,
  destinationIps: rangesSchema,
  notDestinationIps: rangesSchema,
  destinationPorts: portsSchema,
  notDestinationPorts: portsSchema,
});

const policiesSchema = z.array(
  z.strictObject({
    key: z.string().check(z.minLength(1)),
    rules: z.array(z.strictObject({ clauses: z.array(z.nullable(z.array(matchSchema))) })),
  }),
);

const programSchema = z.strictObject({
  version: z.literal(1),
  setId: z.string().check(z.minLength(1)),
  dryRunDeny: policiesSchema,
  deny: policiesSchema,
  dryRunAllow: policiesSchema,
  allow: policiesSchema,
});

/** Encodes the row of a program. */
export function encodeProgram(program: PolicyProgram): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(program));
}

/**
 * Reads the row of a set. Throws POLICY_INVALID that names the set when the row is no program, is one of a
 * format this version does not know, or belongs to another set. The reader then compiles the set itself.
 */
export function decodeProgram(setId: string, row: Uint8Array): PolicyProgram {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(row));
  } catch (error) {
    throw invalid(setId, 'not JSON', error);
  }
  const result = programSchema.safeParse(parsed);
  if (!result.success) {
    const [issue] = result.error.issues;
    throw invalid(setId, `${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`.trim());
  }
  if (result.data.setId !== setId) throw invalid(setId, `is the program of ${result.data.setId}`);
  return result.data;
}

/** The policy keys a program holds. */
export function programKeys(program: PolicyProgram): readonly string[] {
  const { dryRunDeny, deny, dryRunAllow, allow } = program;
  return [...dryRunDeny, ...deny, ...dryRunAllow, ...allow].map((policy) => policy.key);
}

function invalid(setId: string, reason: string, cause?: unknown): MeshError {
  return new MeshError('POLICY_INVALID', `program of set ${setId}: ${reason}`, {
    detail: { setId },
    ...(cause === undefined ? {} : { cause }),
  });
}

function rangeProblem(range: { address: string; length: number }): string | null {
  try {
    const bits = parseIp(range.address).bytes.length * 8;
    return range.length <= bits ? null : `prefix length ${range.length} is above ${bits}`;
  } catch (error) {
    return errorText(error);
  }
}
