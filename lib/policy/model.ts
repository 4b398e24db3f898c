/** Authorization policies and the decision programs compiled from them (docs/spec/policy.md). Plain, clonable data. */

/** A string condition. */
export type StringMatch =
  | { readonly kind: 'exact'; readonly value: string }
  | { readonly kind: 'prefix'; readonly value: string }
  | { readonly kind: 'suffix'; readonly value: string }
  | { readonly kind: 'presence' };

/** An address range; `address` is in canonical text form, host bits are ignored. */
export interface AddressRange {
  readonly address: string;
  readonly length: number;
}

/** A service account condition; the trust domain is ignored. */
export interface ServiceAccountMatch {
  readonly namespace: string;
  readonly serviceAccount: string;
}

/** Conditions on one connection; all populated ones must hold, an empty match never matches. */
export interface Match {
  readonly namespaces: readonly StringMatch[];
  readonly notNamespaces: readonly StringMatch[];
  readonly serviceAccounts: readonly ServiceAccountMatch[];
  readonly notServiceAccounts: readonly ServiceAccountMatch[];
  readonly principals: readonly StringMatch[];
  readonly notPrincipals: readonly StringMatch[];
  readonly sourceIps: readonly AddressRange[];
  readonly notSourceIps: readonly AddressRange[];
  readonly destinationIps: readonly AddressRange[];
  readonly notDestinationIps: readonly AddressRange[];
  readonly destinationPorts: readonly number[];
  readonly notDestinationPorts: readonly number[];
}

/** Rules are ORed, clauses ANDed, matches ORed. */
export interface Authorization {
  readonly name: string;
  readonly namespace: string;
  readonly scope: 'GLOBAL' | 'NAMESPACE' | 'WORKLOAD_SELECTOR';
  readonly action: 'ALLOW' | 'DENY';
  readonly rules: readonly {
    readonly clauses: readonly { readonly matches: readonly Match[] }[];
  }[];
  readonly dryRun: boolean;
}

/** The policies of one set, split and ordered for evaluation. Compiled once per set, shared by workloads. */
export interface PolicyProgram {
  /** Format of the program; a reader that does not know it compiles its own. */
  readonly version: 1;
  readonly setId: string;
  readonly dryRunDeny: readonly CompiledPolicy[];
  readonly deny: readonly CompiledPolicy[];
  readonly dryRunAllow: readonly CompiledPolicy[];
  readonly allow: readonly CompiledPolicy[];
}

/** A policy with its match conditions reduced to those that are populated. */
export interface CompiledPolicy {
  /** `namespace/name`. */
  readonly key: string;
  readonly rules: readonly CompiledRule[];
}

/** Clauses of one rule; each is the list of its non-empty matches, `null` a clause without matches. */
export interface CompiledRule {
  readonly clauses: readonly (readonly Match[] | null)[];
}

/** The facts of a connection that policies are evaluated against. */
export interface ConnectionFacts {
  /** Canonical text form. */
  readonly sourceIp: string;
  /** `spiffe://…` of the peer, null for plaintext. */
  readonly sourceIdentity: string | null;
  readonly destinationIp: string;
  readonly destinationPort: number;
}

/** The outcome of an evaluation, and the policy that decided it. */
export interface Verdict {
  readonly allowed: boolean;
  readonly reason:
    | 'no-policies'
    | 'allowed'
    | 'denied'
    | 'not-allowed'
    | 'unknown-reference'
    | 'undecodable-policy';
  /** Key of the deciding policy, where one decided. */
  readonly policy: string | null;
  /** Index of the rule that matched, counted from 0. */
  readonly rule: number | null;
  /** Keys of dry-run policies that matched (deny) or would have been needed (allow). */
  readonly dryRun: readonly string[];
}

/** The policies that bind one workload now. */
export interface EffectivePolicy {
  readonly setId: string;
  /** Listed keys that are not known. While `pending` holds, the wait of 5 s for them runs. */
  readonly unknown: readonly string[];
  readonly pending: boolean;
  /** Key of a policy that cannot be decoded and has no good version, so that everything is refused; null in the normal case. */
  readonly denyAll: string | null;
}
