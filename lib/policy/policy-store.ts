/** The policies of the mesh, and which of them bind a workload now (docs/spec/policy.md §2, docs/decisions/policy-fails-closed.md). No I/O. */
import { evictOldest } from '../collections/evict.ts';
import { sha256Hex } from '../digest/sha256.ts';
import { asMeshError } from '../errors/mesh-error.ts';
import type { MeshError } from '../errors/mesh-error.ts';
import type { Workload } from '../state/model.ts';
import {
  EFFECTIVE_CACHE_MAX,
  WAITING_WORKLOADS_MAX,
  REASON_CHARS_MAX,
  UNKNOWN_REFERENCE_WAIT_MS,
} from './limits.ts';
import type { Authorization, EffectivePolicy } from './model.ts';
import { namespaceOfKey } from './named-policy.ts';
import type { DecodeAuthorization, NamedPolicy } from './named-policy.ts';
import { REACHES_ALL, reachOf } from './reach.ts';
import { readPolicyRejection } from './rejection.ts';
import type { RejectedPolicy } from './rejection.ts';
import { policySetId } from './set-id.ts';

/** The fields of a workload that decide which policies bind it. */
export type PolicySubject = Pick<Workload, 'namespace' | 'authorizationPolicies'>;

/** The policies that bind a workload, with their contents for the case that their set has no program yet. */
export interface EffectivePolicies {
  readonly policy: EffectivePolicy;
  /** Sorted by key. */
  readonly policies: readonly NamedPolicy[];
  /** When `policy.pending` ends and the caller asks again, in milliseconds of its clock; null when not pending. */
  readonly pendingUntilMs: number | null;
}

/** The outcome of one change. */
export interface PolicyChange {
  /** False when nothing that binds a workload changed. */
  readonly changed: boolean;
  /** Why the new contents were refused; what was in force before still is. */
  readonly error: MeshError | null;
}

/** Settings of a {@link PolicyStore}. */
export interface PolicyStoreOptions {
  /** WEFT_POLICY_UNKNOWN_REFERENCE: with `ignore` the store never waits for unknown references. */
  readonly unknownReference: 'deny' | 'ignore';
  /** The wait for them with `deny`. */
  readonly unknownReferenceWaitMs?: number;
}

interface StoredPolicy extends NamedPolicy {
  readonly digest: string;
}

/** The set that binds workloads of one namespace with one list of policies; one object per set and revision. */
export interface BoundSet {
  readonly setId: string;
  /** Sorted by key. */
  readonly policies: readonly NamedPolicy[];
  /** Listed keys that are not known, sorted. */
  readonly missing: readonly string[];
  /** See {@link EffectivePolicy.denyAll}. */
  readonly denyAll: string | null;
}

const UNCHANGED: PolicyChange = { changed: false, error: null };
const CHANGED: PolicyChange = { changed: true, error: null };

/**
 * Holds the last good version of every policy. A policy that cannot be decoded leaves its last good version in force. If it
 * never had one, all inbound traffic is refused to the namespace in its resource name, to every workload that it binds by its
 * scope, and to every workload that lists it.
 */
export class PolicyStore {
  readonly #decode: DecodeAuthorization;
  readonly #waitMs: number;
  readonly #policies = new Map<string, StoredPolicy>();
  /** Keys of policies that bind by scope, by namespace; `''` binds every namespace. */
  readonly #scoped = new Map<string, Set<string>>();
  /** Rejections by the ingester, by row key of their table. */
  readonly #rejections = new Map<string, RejectedPolicy>();
  /** Policies whose own bytes this store could not decode. */
  readonly #undecodable = new Map<string, RejectedPolicy>();
  /** First sights of missing keys, by uid of the workload that lists them. */
  readonly #waiting = new Map<string, ReadonlyMap<string, number>>();
  /** Sets as of this revision. */
  readonly #bound = new Map<string, BoundSet>();
  #refused: ReadonlyMap<string, RejectedPolicy> | null = null;
  #revision = 0;

  constructor(decode: DecodeAuthorization, options: PolicyStoreOptions) {
    this.#decode = decode;
    const waitMs = options.unknownReferenceWaitMs ?? UNKNOWN_REFERENCE_WAIT_MS;
    this.#waitMs = options.unknownReference === 'ignore' ? 0 : waitMs;
  }

  /** Grows with every change that may bind a workload. */
  get revision(): number {
    return this.#revision;
  }

  /** Number of policies in force. */
  get size(): number {
    return this.#policies.size;
  }

  /** The keys of all policies, good or not. */
  keys(): readonly string[] {
    return [...new Set([...this.#policies.keys(), ...this.#undecodable.keys()])];
  }

  /** The version of a policy that is in force. */
  get(key: string): Authorization | undefined {
    return this.#policies.get(key)?.policy;
  }

  /** All policies in force. */
  *policies(): IterableIterator<NamedPolicy> {
    for (const { key, policy } of this.#policies.values()) yield { key, policy };
  }

  /**
   * Takes a row of the `authorizations` table, null for a removal. Never throws for what is in the row: see
   * {@link PolicyChange.error}.
   */
  apply(key: string, bytes: Uint8Array | null): PolicyChange {
    if (bytes === null) return this.#remove(key);
    const digest = sha256Hex(bytes);
    if (this.#policies.get(key)?.digest === digest) return this.#forgetUndecodable(key);
    let policy: Authorization;
    try {
      policy = this.#decode(bytes);
    } catch (error) {
      return this.#refuse(key, bytes, asMeshError(error, 'POLICY_INVALID', `policy ${key}`));
    }
    this.#drop(key);
    this.#undecodable.delete(key);
    this.#policies.set(key, { key, policy, digest });
    if (policy.scope !== 'WORKLOAD_SELECTOR') {
      const namespace = scopeOf(policy);
      const keys = this.#scoped.get(namespace) ?? new Set();
      this.#scoped.set(namespace, keys.add(key));
    }
    this.#touch();
    return CHANGED;
  }

  /** Takes a row of the `rejections` table, null for a removal; rows on other types are no change. */
  applyRejection(rowKey: string, value: Uint8Array | null): PolicyChange {
    const rejected = value === null ? null : readPolicyRejection(rowKey, value);
    if (rejected === null) {
      if (!this.#rejections.delete(rowKey)) return UNCHANGED;
    } else {
      this.#rejections.set(rowKey, rejected);
    }
    this.#touch();
    return CHANGED;
  }

  /** Row keys of the rejections held. */
  rejectionRows(): readonly string[] {
    return [...this.#rejections.keys()];
  }

  /** Every policy whose newest version is refused, by key; whether an older one is in force tells {@link get}. */
  rejected(): ReadonlyMap<string, RejectedPolicy> {
    const all = new Map([...this.#rejections.values()].map((row) => [row.key, row]));
    for (const [key, row] of this.#undecodable) all.set(key, row);
    return all;
  }

  /**
   * The policies that bind the workload at `nowMs`. A listed key that is not known is pending for the store's wait, from the
   * moment this workload was first seen to list it. Ask again at `pendingUntilMs` and after every change of the store or the
   * workload, and {@link forget} a workload that is gone.
   */
  effectiveFor(
    workload: PolicySubject & { readonly uid: string },
    nowMs: number,
  ): EffectivePolicies {
    const bound = this.setFor(workload);
    const waiting = this.#firstSights(workload.uid, bound.missing, nowMs);
    const overdue = bound.missing.filter((key) => (waiting.get(key) ?? 0) + this.#waitMs <= nowMs);
    const pending = bound.missing.length > 0 && overdue.length === 0;
    return {
      policy: {
        setId: bound.setId,
        // The ones that deny come first.
        unknown: [...overdue, ...bound.missing.filter((key) => !overdue.includes(key))],
        pending,
        denyAll: bound.denyAll,
      },
      policies: bound.policies,
      pendingUntilMs: pending ? Math.min(...waiting.values()) + this.#waitMs : null,
    };
  }

  /** Forgets the waits of a workload. */
  forget(uid: string): void {
    this.#waiting.delete(uid);
  }

  /** The set that binds a workload, without the waits of {@link effectiveFor}. */
  setFor(subject: PolicySubject): BoundSet {
    const listed = subject.authorizationPolicies;
    const cacheKey = JSON.stringify([subject.namespace, ...listed]);
    const known = this.#bound.get(cacheKey);
    if (known !== undefined) return known;
    const made = this.#bind(subject.namespace, listed);
    this.#bound.set(cacheKey, made);
    evictOldest(this.#bound, EFFECTIVE_CACHE_MAX);
    return made;
  }

  /** The set of the policies with these keys that are in force; keys without one are left out. */
  setOf(keys: readonly string[]): {
    readonly setId: string;
    readonly policies: readonly NamedPolicy[];
  } {
    const members = keys.flatMap((key) => this.#policies.get(key) ?? []);
    return {
      setId: policySetId(members),
      policies: members.map(({ key, policy }) => ({ key, policy })),
    };
  }

  #bind(namespace: string, listed: readonly string[]): BoundSet {
    const keys = new Set([
      ...(this.#scoped.get('') ?? []),
      ...(this.#scoped.get(namespace) ?? []),
      ...listed,
    ]);
    const members: StoredPolicy[] = [];
    const missing: string[] = [];
    for (const key of [...keys].sort()) {
      const stored = this.#policies.get(key);
      if (stored !== undefined) members.push(stored);
      else if (!this.#neverGood().has(key)) missing.push(key);
    }
    return {
      setId: policySetId(members),
      policies: members.map(({ key, policy }) => ({ key, policy })),
      missing,
      denyAll: this.#denyAll(namespace, listed),
    };
  }

  /** The key of an undecodable policy without a good version that reaches the namespace or is listed; null without one. */
  #denyAll(namespace: string, listed: readonly string[]): string | null {
    for (const [key, { reach }] of this.#neverGood()) {
      const binds = reach === REACHES_ALL || reach === namespace;
      if (binds || namespaceOfKey(key) === namespace || listed.includes(key)) return key;
    }
    return null;
  }

  #neverGood(): ReadonlyMap<string, RejectedPolicy> {
    if (this.#refused !== null) return this.#refused;
    const refused = [...this.rejected()].filter(([key]) => !this.#policies.has(key));
    this.#refused = new Map(refused.sort(([left], [right]) => (left < right ? -1 : 1)));
    return this.#refused;
  }

  /** When the workload was first seen to list each missing key; forgets those it no longer lists or that came. */
  #firstSights(
    uid: string,
    missing: readonly string[],
    nowMs: number,
  ): ReadonlyMap<string, number> {
    const before = this.#waiting.get(uid);
    this.#waiting.delete(uid);
    const since = new Map(missing.map((key) => [key, before?.get(key) ?? nowMs]));
    if (since.size === 0) return since;
    // At the end of the map, so that the workload asked for least recently is forgotten first.
    this.#waiting.set(uid, since);
    evictOldest(this.#waiting, WAITING_WORKLOADS_MAX);
    return since;
  }

  #refuse(key: string, bytes: Uint8Array, error: MeshError): PolicyChange {
    const reason = error.message.slice(0, REASON_CHARS_MAX);
    const reach = reachOf(bytes);
    const before = this.#undecodable.get(key);
    const changed = before?.reason !== reason || before.reach !== reach;
    this.#undecodable.set(key, { key, reason, reach, at: '' });
    if (changed) this.#touch();
    return { changed, error };
  }

  #remove(key: string): PolicyChange {
    const known = this.#drop(key);
    const refused = this.#undecodable.delete(key);
    if (!known && !refused) return UNCHANGED;
    this.#touch();
    return CHANGED;
  }

  #drop(key: string): boolean {
    const stored = this.#policies.get(key);
    if (stored === undefined) return false;
    this.#policies.delete(key);
    const namespace = scopeOf(stored.policy);
    const keys = this.#scoped.get(namespace);
    keys?.delete(key);
    if (keys?.size === 0) this.#scoped.delete(namespace);
    return true;
  }

  #forgetUndecodable(key: string): PolicyChange {
    if (!this.#undecodable.delete(key)) return UNCHANGED;
    this.#touch();
    return CHANGED;
  }

  #touch(): void {
    this.#revision += 1;
    this.#refused = null;
    this.#bound.clear();
  }
}

/** The namespace a policy binds by its scope; `''` is every namespace (docs/spec/policy.md §1). */
function scopeOf(policy: Authorization): string {
  return policy.scope === 'GLOBAL' ? '' : policy.namespace;
}
