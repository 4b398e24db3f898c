/** Decides how the mesh answers a pod's question about an address (docs/spec/dns.md §2 and §4). Pure. */
import { ipFamily } from '../net/address.ts';
import type { Need } from '../state/lookups.ts';
import type { ServiceWithEndpoints } from '../state/endpoint-set.ts';
import type { Service } from '../state/model.ts';
import { rangeOf } from '../state/range.ts';
import type { LookupKey, MeshView } from '../state/view.ts';
import { aliasesOf, meshSearchDomains, wildcardForms } from './aliases.ts';
import type { Alias } from './aliases.ts';
import { CANDIDATES_PER_ROUND } from './limits.ts';
import type { LocalAnswer } from './response.ts';
import { CLASS_IN, TYPE } from './wire.ts';

/** The pod that asks. */
export interface DnsClient {
  readonly namespace: string;
  readonly network: string;
}

/** Settings of resolution. */
export interface DnsRules {
  readonly clusterDomain: string;
  readonly ipv6: boolean;
  /** The namespace that wins where several have the name; null for none. */
  readonly preferredNamespace: string | null;
  /** Null stands for the search domains of a pod of the mesh. */
  readonly searchDomains: readonly string[] | null;
}

/** The decision about a question. */
export type DnsDecision =
  | { readonly kind: 'forward' }
  | { readonly kind: 'local'; readonly service: Service; readonly answer: LocalAnswer };

/** The part of a question that {@link resolveQuestion} reads. */
export interface AskedName {
  readonly name: string | null;
  readonly type: number;
  readonly class: number;
}

interface Candidate {
  readonly alias: Alias;
  readonly hostname: string;
}

interface Found {
  readonly alias: Alias;
  readonly match: ServiceWithEndpoints;
}

/**
 * Decides whether the mesh answers a question, and with which answer. Returns the keys it needs while `view` does not hold them yet;
 * a missing key never counts as "no such name". `shuffle` orders several addresses.
 */
export function resolveQuestion(
  view: MeshView,
  question: AskedName,
  context: {
    readonly client: DnsClient;
    readonly rules: DnsRules;
    readonly shuffle: (addresses: readonly string[]) => readonly string[];
  },
): DnsDecision | Need {
  const { client, rules, shuffle } = context;
  const family = familyOf(question);
  if (family === null || question.name === null) return { kind: 'forward' };
  const found = findService(view, question.name, client, rules);
  if (found === null) return { kind: 'forward' };
  if ('kind' in found) return found;
  const { alias, match } = found;
  const stripped = match.service.hostname.startsWith('*') ? null : alias.stripped;
  const addresses = answersFamily(match.service, family, rules)
    ? addressesOf(match, family, client.network)
    : [];
  return {
    kind: 'local',
    service: match.service,
    answer: {
      alias: addresses.length === 0 ? null : stripped,
      addresses: addresses.length < 2 ? addresses : shuffle(addresses),
    },
  };
}

/** The address family that a question asks for; null when it asks for no address. */
function familyOf(question: AskedName): 4 | 6 | null {
  if (question.class !== CLASS_IN) return null;
  if (question.type === TYPE.A) return 4;
  return question.type === TYPE.AAAA ? 6 : null;
}

function findService(
  view: MeshView,
  name: string,
  client: DnsClient,
  rules: DnsRules,
): Found | Need | null {
  const candidates = candidatesOf(name, client, rules);
  for (const [index, { alias, hostname }] of candidates.entries()) {
    const answer = view.get({ kind: 'hostname', hostname });
    if (answer === undefined) return needFrom(view, candidates, index);
    const match = pick(answer.services, client, rules);
    if (match !== null) return { alias, match };
  }
  return null;
}

function candidatesOf(name: string, client: DnsClient, rules: DnsRules): Candidate[] {
  const { clusterDomain } = rules;
  const { namespace } = client;
  const searchDomains = rules.searchDomains ?? meshSearchDomains(namespace, clusterDomain);
  return aliasesOf(name, { namespace, clusterDomain, searchDomains }).flatMap((alias) =>
    wildcardForms(alias.name).map((hostname) => ({ alias, hostname })),
  );
}

/** The keys missing from `first` on, so that one fetch brings several answers. */
function needFrom(view: MeshView, candidates: readonly Candidate[], first: number): Need {
  const keys = new Map<string, LookupKey>();
  for (const { hostname } of candidates.slice(first, first + CANDIDATES_PER_ROUND)) {
    const key = { kind: 'hostname', hostname } as const;
    if (view.get(key) === undefined) keys.set(hostname, key);
  }
  return { kind: 'need', keys: [...keys.values()] };
}

/** Picks the service in the client's namespace, else the last canonical one, else one in the preferred namespace, else the first. */
function pick(
  services: readonly ServiceWithEndpoints[],
  client: DnsClient,
  rules: DnsRules,
): ServiceWithEndpoints | null {
  const usable = services.filter(
    ({ service }) =>
      (singleAddresses(service).length > 0 || isHeadless(service, rules)) &&
      (service.visibility === 'PUBLIC' || service.namespace === client.namespace),
  );
  return (
    usable.find(({ service }) => service.namespace === client.namespace) ??
    usable.findLast(({ service }) => service.canonical) ??
    usable.find(({ service }) => service.namespace === rules.preferredNamespace) ??
    usable[0] ??
    null
  );
}

/** Only a Kubernetes service without addresses of its own stands for its endpoints. */
function isHeadless(service: Service, { clusterDomain }: DnsRules): boolean {
  return service.hostname.endsWith(`.svc.${clusterDomain}`);
}

function singleAddresses(service: Service): Service['addresses'] {
  return service.addresses.filter((address) => rangeOf(address) === null);
}

function answersFamily(service: Service, family: 4 | 6, rules: DnsRules): boolean {
  if (family === 6 && !rules.ipv6) return false;
  return service.ipFamilies !== (family === 4 ? 'IPV6_ONLY' : 'IPV4_ONLY');
}

function addressesOf(match: ServiceWithEndpoints, family: 4 | 6, network: string): string[] {
  const own = singleAddresses(match.service);
  const addresses =
    own.length > 0
      ? own.filter((address) => address.network === network).map(({ ip }) => ip)
      : [...match.endpoints].flatMap(
          ({ workload }) => workload.addresses.find((ip) => ipFamily(ip) === family) ?? [],
        );
  return [...new Set(addresses.filter((ip) => ipFamily(ip) === family))];
}

/** A copy in random order, each order equally likely; `random` gives numbers from 0 up to 1. */
export function shuffled<T>(items: readonly T[], random: () => number = Math.random): T[] {
  const copy = [...items];
  for (let last = copy.length - 1; last > 0; last -= 1) {
    const other = Math.floor(random() * (last + 1));
    const held = copy[last] as T;
    copy[last] = copy[other] as T;
    copy[other] = held;
  }
  return copy;
}
