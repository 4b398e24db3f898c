/** `weft get policies`: the policies of the mesh and their states. */
import { errorText } from '../errors/mesh-error.ts';
import { byText } from '../state/listing.ts';
import type { Listing, TableRows, UnreadableRow } from '../state/listing.ts';
import type { Authorization } from './model.ts';
import type { DecodeAuthorization } from './named-policy.ts';
import { namespaceOfKey } from './named-policy.ts';
import { PolicyStore } from './policy-store.ts';
import { decodeProgram, programKeys } from './program-codec.ts';
import { REACHES_ALL } from './reach.ts';
import type { Reach } from './reach.ts';
import type { RejectedPolicy } from './rejection.ts';

/**
 * State of a policy: `active` = some workload's program holds it; `unused` = none does (it selects
 * nothing, or is not compiled yet); `stale` = its newest version was rejected and an older one is in force;
 * `rejected` = no version could be decoded, so every workload that it reaches refuses all.
 */
export type PolicyState = 'active' | 'unused' | 'stale' | 'rejected';

/** One line of `weft get policies`. */
export interface PolicyLine {
  readonly namespace: string;
  readonly name: string;
  /** Null where no version could be decoded. */
  readonly action: Authorization['action'] | null;
  readonly scope: Authorization['scope'] | null;
  readonly state: PolicyState;
  /** The reason for the state; empty when active and enforced. */
  readonly reason: string;
}

/** The tables that are read. */
export interface PolicyTables {
  readonly authorizations: TableRows;
  readonly rejections: TableRows;
  readonly programs: TableRows;
}

/** Policies by namespace and name. */
export function listPolicies(
  tables: PolicyTables,
  decode: DecodeAuthorization,
): Listing<PolicyLine> {
  const unreadable: UnreadableRow[] = [];
  const store = new PolicyStore(decode, { unknownReference: 'deny' });
  for (const [key, value] of tables.authorizations) {
    const { error } = store.apply(key, value);
    if (error !== null) unreadable.push({ key, reason: error.message });
  }
  for (const [key, value] of tables.rejections) store.applyRejection(key, value);
  const used = new Set<string>();
  for (const [setId, row] of tables.programs) {
    try {
      for (const key of programKeys(decodeProgram(setId, row))) used.add(key);
    } catch (error) {
      unreadable.push({ key: setId, reason: errorText(error) });
    }
  }
  const rejected = store.rejected();
  const keys = new Set([...store.keys(), ...rejected.keys()]);
  const lines = [...keys].map((key) =>
    policyLine(key, store.get(key), rejected.get(key), used.has(key)),
  );
  return { lines: lines.sort(byText((line) => [line.namespace, line.name])), unreadable };
}

function policyLine(
  key: string,
  policy: Authorization | undefined,
  rejected: RejectedPolicy | undefined,
  used: boolean,
): PolicyLine {
  const namespace = namespaceOfKey(key);
  const name = key.slice(namespace.length + 1) || key;
  if (policy === undefined) {
    const why = rejected?.reason ?? '';
    const reason = `${why}; everything inbound${to(namespace, rejected?.reach ?? null)} is refused`;
    return { namespace, name, action: null, scope: null, state: 'rejected', reason };
  }
  const { action, scope, dryRun } = policy;
  const line = { namespace, name, action, scope };
  if (rejected !== undefined) {
    return {
      ...line,
      state: 'stale',
      reason: `${rejected.reason}; the last good version is in force`,
    };
  }
  if (!used)
    return { ...line, state: 'unused', reason: 'no workload uses it, or it is not compiled yet' };
  return { ...line, state: 'active', reason: dryRun ? 'dry run: logged, not enforced' : '' };
}

function to(namespace: string, reach: Reach): string {
  if (reach === REACHES_ALL) return '';
  return reach === null || reach === namespace
    ? ` to namespace ${namespace}`
    : ` to namespaces ${namespace} and ${reach}`;
}
