/** Conversions of single conditions (docs/spec/istiod-ambient.md §2.2). The schemas have checked the input. */
import { formatIp } from '../../../lib/net/address.ts';
import { parsePrefix } from '../../../lib/net/prefix.ts';
import type {
  AddressRange,
  Match,
  ServiceAccountMatch,
  StringMatch,
} from '../../../lib/policy/model.ts';

const DEFAULT_TRUST_DOMAIN = 'cluster.local';

/** A match without conditions. */
export const EMPTY_MATCH: Match = {
  namespaces: [],
  notNamespaces: [],
  serviceAccounts: [],
  notServiceAccounts: [],
  principals: [],
  notPrincipals: [],
  sourceIps: [],
  notSourceIps: [],
  destinationIps: [],
  notDestinationIps: [],
  destinationPorts: [],
  notDestinationPorts: [],
};

/** `*` is presence, `*x` a suffix, `x*` a prefix, anything else exact. */
export function stringMatches(texts: readonly string[] | undefined): StringMatch[] {
  return (texts ?? []).map((text): StringMatch => {
    if (text === '*') return { kind: 'presence' };
    if (text.startsWith('*')) return { kind: 'suffix', value: text.slice(1) };
    if (text.endsWith('*')) return { kind: 'prefix', value: text.slice(0, -1) };
    return { kind: 'exact', value: text };
  });
}

/**
 * Principals of one of the mesh's trust domains, written in each of them. `cluster.local` stands for the mesh's own, as in
 * Istio. Other texts stay as they are.
 */
export function inEveryTrustDomain(
  texts: readonly string[] | undefined,
  trustDomains: readonly string[],
): string[] | undefined {
  if (texts === undefined || trustDomains.length === 0) return texts?.slice();
  const own = new Set([...trustDomains, DEFAULT_TRUST_DOMAIN]);
  const written = texts.flatMap((text) => {
    const slash = text.indexOf('/');
    if (slash <= 0 || !own.has(text.slice(0, slash))) return [text];
    return [text, ...trustDomains.map((domain) => `${domain}${text.slice(slash)}`)];
  });
  return [...new Set(written)];
}

/** CIDR ranges; an address without a length is a range of one. */
export function addressRanges(texts: readonly string[] | undefined): AddressRange[] {
  return (texts ?? []).map((text) => {
    const prefix = parsePrefix(text);
    return { address: formatIp(prefix.bytes), length: prefix.length };
  });
}

/** Port numbers of their texts. */
export function ports(texts: readonly string[] | undefined): number[] {
  return (texts ?? []).map(Number);
}

/** `namespace/account`, or `account` in the policy's own namespace. */
export function serviceAccounts(
  texts: readonly string[] | undefined,
  policyNamespace: string,
): ServiceAccountMatch[] {
  return (texts ?? []).map((text) => {
    const [first = '', second] = text.split('/');
    return second === undefined
      ? { namespace: policyNamespace, serviceAccount: first }
      : { namespace: first, serviceAccount: second };
  });
}
