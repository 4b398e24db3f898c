import { compareText } from '../collections/compare.ts';
import { sha256Hex } from '../digest/sha256.ts';

/** One policy of a set: its key and the SHA-256 of its bytes. */
export interface SetMember {
  readonly key: string;
  readonly digest: string;
}

/**
 * Names a set of policies by the keys and contents of its members, whatever their order: equal sets have
 * equal ids in every process that holds the same bytes. A collision would let one tenant's policies stand in
 * for another's, hence a cryptographic hash. The leading format number changes with the program format, so
 * that programs of two formats never share an id.
 */
export function policySetId(members: readonly SetMember[]): string {
  const sorted = members.toSorted((left, right) => compareText(left.key, right.key));
  return sha256Hex(JSON.stringify([1, ...sorted.map(({ key, digest }) => [key, digest])]));
}

/** The id of the set without policies. */
export const EMPTY_SET_ID: string = policySetId([]);
