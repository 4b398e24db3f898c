/** Decides which names a caller gets into a certificate. Pure. */
import { formatSpiffe, tryParseSpiffe } from '../../lib/net/spiffe.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import type { TokenSubject } from '../../lib/identity/token.ts';
import type { RefusalReason } from './metrics.ts';
import type { PodRegistry } from './pods.ts';

/** The configured rules. */
export interface GrantRules {
  readonly trustDomain: string;
  /** Other trust domains of the mesh. Nodes may ask for their identities, too; nobody gets one for itself. */
  readonly trustDomainAliases: readonly string[];
  /** `namespace/serviceAccount` of the callers that may request the identities of pods on their own node. */
  readonly trustedNodeAccounts: readonly string[];
  /** Server names by `namespace/serviceAccount`, in addition to the own identity. */
  readonly servingNames: Readonly<Record<string, readonly AltName[]>>;
}

/** The names to certify, or a refusal, whose `detail` goes to the operator and never to the caller. */
export type Grant =
  | { readonly granted: true; readonly identity: string; readonly names: readonly AltName[] }
  | { readonly granted: false; readonly reason: RefusalReason; readonly detail: string };

/**
 * Decides on the request of an authenticated caller. Without `impersonated` the caller gets its own identity and the server
 * names of its account. With it, docs/spec/istiod-ambient.md §4.2 applies, and the trust domain must be one of the mesh.
 */
export function decideGrant(
  caller: TokenSubject,
  impersonated: string | null,
  rules: GrantRules,
  pods: PodRegistry,
): Grant {
  const account = `${caller.namespace}/${caller.serviceAccount.name}`;
  if (impersonated !== null) return impersonate(caller, account, impersonated, rules, pods);
  // The control plane gives the pods in its list uids of its own, so the list does not confirm its own token.
  const gone = rules.servingNames[account] === undefined ? callerProblem(caller, pods) : null;
  if (gone !== null) return refused('unknown_caller_pod', gone);
  const identity = formatSpiffe({
    trustDomain: rules.trustDomain,
    namespace: caller.namespace,
    serviceAccount: caller.serviceAccount.name,
  });
  const serving = rules.servingNames[account] ?? [];
  return { granted: true, identity, names: [{ kind: 'uri', value: identity }, ...serving] };
}

function impersonate(
  caller: TokenSubject,
  account: string,
  identity: string,
  rules: GrantRules,
  pods: PodRegistry,
): Grant {
  if (!rules.trustedNodeAccounts.includes(account)) {
    return refused('untrusted_caller', `${account} is not a trusted node account`);
  }
  const id = tryParseSpiffe(identity);
  if (id === null) return refused('bad_identity', `${JSON.stringify(identity)} is no identity`);
  const { trustDomain, trustDomainAliases: aliases } = rules;
  if (id.trustDomain !== trustDomain && !aliases.includes(id.trustDomain)) {
    const others = aliases.length === 0 ? '' : `, nor of its aliases ${aliases.join(', ')}`;
    return refused(
      'foreign_trust_domain',
      `${identity} is not of the trust domain ${trustDomain}${others}`,
    );
  }
  if (!pods.synced) return refused('no_pod_registry', 'no list of pods was received yet');
  const gone = callerProblem(caller, pods);
  if (gone !== null) return refused('unknown_caller_pod', gone);
  const node = nodeOf(caller, pods);
  if (node === null) {
    return refused('unknown_node', `the token of ${account} names no node`);
  }
  if (!pods.runsOnNode(node, id.namespace, id.serviceAccount)) {
    return refused('no_such_pod', `no pod of ${id.namespace}/${id.serviceAccount} runs on ${node}`);
  }
  return { granted: true, identity, names: [{ kind: 'uri', value: identity }] };
}

/**
 * Returns the reason why the token's pod does not confirm the token; null when it does, or when the token is bound to no pod.
 * The token of a deleted pod stays valid to its end (docs/spec/istiod-ambient.md §4.2, rule 4), so that only the list of
 * pods can tell. Before the first list the result is null, and the CA grants only a caller's own identity.
 */
function callerProblem(caller: TokenSubject, pods: PodRegistry): string | null {
  if (caller.pod === null || !pods.synced) return null;
  const pod = pods.find(caller.namespace, caller.pod.name, caller.pod.uid);
  const what = `pod ${caller.namespace}/${caller.pod.name} (uid ${caller.pod.uid}) of the token`;
  if (pod === null) return `the ${what} does not exist`;
  if (pod.failed) return `the ${what} has failed`;
  if (pod.serviceAccount !== caller.serviceAccount.name) {
    return `the ${what} runs as ${pod.serviceAccount}, not as ${caller.serviceAccount.name}`;
  }
  if (caller.node !== null && pod.node !== caller.node.name) {
    return `the ${what} runs on ${pod.node === '' ? 'no node' : pod.node}, not on ${caller.node.name}`;
  }
  return null;
}

/** Returns the signed node claim, or the node of the caller's pod in older clusters, which set no claim. */
function nodeOf(caller: TokenSubject, pods: PodRegistry): string | null {
  if (caller.node !== null) return caller.node.name;
  if (caller.pod === null) return null;
  const node = pods.find(caller.namespace, caller.pod.name, caller.pod.uid)?.node ?? '';
  return node === '' ? null : node;
}

function refused(reason: RefusalReason, detail: string): Grant {
  return { granted: false, reason, detail };
}

/** Returns the life of a certificate, or the requested life if it is too long. Milliseconds. */
export function decideLifetime(
  requestedSeconds: number,
  limits: { readonly defaultMs: number; readonly maxMs: number },
): { readonly lifetimeMs: number } | { readonly tooLongMs: number } {
  if (requestedSeconds <= 0) return { lifetimeMs: limits.defaultMs };
  const requestedMs = requestedSeconds * 1000;
  return requestedMs > limits.maxMs ? { tooLongMs: requestedMs } : { lifetimeMs: requestedMs };
}
