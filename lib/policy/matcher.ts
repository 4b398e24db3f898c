/**
 * Compiles the conditions of a match into the form that checks use: sets instead of lists, ranges parsed and sorted.
 * Made once per program (see evaluate.ts), never sent anywhere.
 */
import { parseIp } from '../net/address.ts';
import type { IpAddress } from '../net/address.ts';
import { PrefixSet, makePrefix } from '../net/prefix.ts';
import type { AddressRange, Match, ServiceAccountMatch, StringMatch } from './model.ts';

/** The facts that conditions are checked against; derived from the connection once per evaluation. */
export interface Subject {
  readonly sourceIp: IpAddress;
  readonly destinationIp: IpAddress;
  readonly destinationPort: number;
  /** Identity without `spiffe://`; null for a plaintext peer, which no principal condition matches. */
  readonly principal: string | null;
  /** Namespace of the identity, `''` for a plaintext peer. */
  readonly namespace: string;
  /** `namespace/serviceAccount`, null for a plaintext peer. */
  readonly serviceAccount: string | null;
}

/** A compiled match: true when all its populated conditions hold. */
export interface Matcher {
  matches(subject: Subject): boolean;
}

/** Makes the matcher of one match. Throws ADDRESS_INVALID for a range that is none. */
export function makeMatcher(match: Match): Matcher {
  return new ConditionMatcher(match);
}

class ConditionMatcher implements Matcher {
  readonly #namespaces: StringSet | null;
  readonly #notNamespaces: StringSet | null;
  readonly #serviceAccounts: ReadonlySet<string> | null;
  readonly #notServiceAccounts: ReadonlySet<string> | null;
  readonly #principals: StringSet | null;
  readonly #notPrincipals: StringSet | null;
  readonly #sourceIps: PrefixSet | null;
  readonly #notSourceIps: PrefixSet | null;
  readonly #destinationIps: PrefixSet | null;
  readonly #notDestinationIps: PrefixSet | null;
  readonly #ports: ReadonlySet<number> | null;
  readonly #notPorts: ReadonlySet<number> | null;

  constructor(match: Match) {
    this.#namespaces = strings(match.namespaces);
    this.#notNamespaces = strings(match.notNamespaces);
    this.#serviceAccounts = accounts(match.serviceAccounts);
    this.#notServiceAccounts = accounts(match.notServiceAccounts);
    this.#principals = strings(match.principals);
    this.#notPrincipals = strings(match.notPrincipals);
    this.#sourceIps = ranges(match.sourceIps);
    this.#notSourceIps = ranges(match.notSourceIps);
    this.#destinationIps = ranges(match.destinationIps);
    this.#notDestinationIps = ranges(match.notDestinationIps);
    this.#ports = ports(match.destinationPorts);
    this.#notPorts = ports(match.notDestinationPorts);
  }

  matches(subject: Subject): boolean {
    return (
      this.#portsHold(subject.destinationPort) &&
      this.#peerHolds(subject) &&
      inRanges(this.#sourceIps, this.#notSourceIps, subject.sourceIp) &&
      inRanges(this.#destinationIps, this.#notDestinationIps, subject.destinationIp)
    );
  }

  #portsHold(port: number): boolean {
    if (this.#ports !== null && !this.#ports.has(port)) return false;
    return this.#notPorts === null || !this.#notPorts.has(port);
  }

  #peerHolds({ namespace, principal, serviceAccount }: Subject): boolean {
    if (this.#namespaces !== null && !this.#namespaces.has(namespace)) return false;
    if (this.#notNamespaces !== null && this.#notNamespaces.has(namespace)) return false;
    if (this.#principals !== null && (principal === null || !this.#principals.has(principal))) {
      return false;
    }
    if (this.#notPrincipals !== null && principal !== null && this.#notPrincipals.has(principal)) {
      return false;
    }
    if (this.#serviceAccounts !== null) {
      if (serviceAccount === null || !this.#serviceAccounts.has(serviceAccount)) return false;
    }
    if (this.#notServiceAccounts === null || serviceAccount === null) return true;
    return !this.#notServiceAccounts.has(serviceAccount);
  }
}

/** String conditions, ORed: exact ones by hash, the others one by one. */
class StringSet {
  readonly #exact = new Set<string>();
  readonly #prefixes: string[] = [];
  readonly #suffixes: string[] = [];
  readonly #presence: boolean;

  constructor(matches: readonly StringMatch[]) {
    let presence = false;
    for (const match of matches) {
      switch (match.kind) {
        case 'exact':
          this.#exact.add(match.value);
          break;
        case 'prefix':
          this.#prefixes.push(match.value);
          break;
        case 'suffix':
          this.#suffixes.push(match.value);
          break;
        case 'presence':
          presence = true;
          break;
      }
    }
    this.#presence = presence;
  }

  has(value: string): boolean {
    if (this.#presence && value !== '') return true;
    if (this.#exact.has(value)) return true;
    for (const prefix of this.#prefixes) if (value.startsWith(prefix)) return true;
    for (const suffix of this.#suffixes) if (value.endsWith(suffix)) return true;
    return false;
  }
}

function strings(matches: readonly StringMatch[]): StringSet | null {
  return matches.length === 0 ? null : new StringSet(matches);
}

function accounts(matches: readonly ServiceAccountMatch[]): ReadonlySet<string> | null {
  if (matches.length === 0) return null;
  return new Set(matches.map((match) => `${match.namespace}/${match.serviceAccount}`));
}

function ports(list: readonly number[]): ReadonlySet<number> | null {
  return list.length === 0 ? null : new Set(list);
}

function ranges(list: readonly AddressRange[]): PrefixSet | null {
  if (list.length === 0) return null;
  return new PrefixSet(list.map((range) => makePrefix(parseIp(range.address), range.length)));
}

function inRanges(some: PrefixSet | null, none: PrefixSet | null, ip: IpAddress): boolean {
  if (some !== null && !some.contains(ip)) return false;
  return none === null || !none.contains(ip);
}
