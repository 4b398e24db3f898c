/** Who gets which names into a certificate: pure, all knowledge is handed in. */
import { formatSpiffe, tryParseSpiffe } from '../../lib/net/spiffe.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import type { TokenSubject } from '../../lib/identity/token.ts';
import type { RefusalReason } from './metrics.ts';
import type { PodRegistry } from './pods.ts';

/** What the decision hangs on besides the caller and the pods. */
export interface GrantRules {
  readonly trustDomain: string;
  /** `namespace/serviceAccount` that may ask for the identities of pods on their own node. */
  readonly trustedNodeAccounts: readonly string[];
  /** `namespace/serviceAccount` → server names beside its own identity. */
  readonly servingNames: Readonly<Record<string, readonly AltName[]>>;
}

/** The names to certify, or why not: `detail` is for the operator, never for the caller. */
export type Grant =
  | { readonly granted: true; readonly identity: string; readonly names: readonly AltName[] }
  | { readonly granted: false; readonly reason: RefusalReason; readonly detail: string };

/**
 * Decides what an authenticated caller gets. Without `impersonated` that is its own identity, plus the server
 * names of its account. With it, the rules of docs/spec/istiod-ambient.md §4.2 hold, and the trust domain must be ours.
 */
export function decideGrant(
  caller: TokenSubject,
  impersonated: string | null,
  rules: GrantRules,
  pods: PodRegistry,
): Grant {
  const account = `${caller.namespace}/${caller.serviceAccount.name}`;
  if (impersonated !== null) return impersonate(caller, account, impersonated, rules, pods);
  const gone = callerProblem(caller, pods);
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
  if (id.trustDomain !== rules.trustDomain) {
    return refused(
      'foreign_trust_domain',
      `${identity} is not of the trust domain ${rules.trustDomain}`,
    );
  }
  if (!pods.synced) return refused('no_pod_registry', 'the pods have never been known');
  const gone = callerProblem(caller, pods);
  if (gone !== null) return refused('unknown_caller_pod', gone);
  const node = nodeOf(caller, pods);
  if (node === null) {
    return refused('unknown_node', `the node of ${account} cannot be told from its token`);
  }
  if (!pods.runsOnNode(node, id.namespace, id.serviceAccount)) {
    return refused('no_such_pod', `no pod of ${id.namespace}/${id.serviceAccount} runs on ${node}`);
  }
  return { granted: true, identity, names: [{ kind: 'uri', value: identity }] };
}

/**
 * Why the pod that the token is bound to does not stand for it; null when it does, or the token is bound to none. A pod that is
 * gone has left its token behind, which is valid to its end (docs/spec/istiod-ambient.md §4.2, rule 4). While the pods have
 * never been known nobody can tell, and only a caller's own identity is granted then.
 */
function callerProblem(caller: TokenSubject, pods: PodRegistry): string | null {
  if (caller.pod === null || !pods.synced) return null;
  const pod = pods.find(caller.namespace, caller.pod.name, caller.pod.uid);
  const what = `pod ${caller.namespace}/${caller.pod.name} (uid ${caller.pod.uid}) of the token`;
  if (pod === null) return `the ${what} is not there`;
  if (pod.failed) return `the ${what} has failed`;
  if (pod.serviceAccount !== caller.serviceAccount.name) {
    return `the ${what} runs as ${pod.serviceAccount}, not as ${caller.serviceAccount.name}`;
  }
  if (caller.node !== null && pod.node !== caller.node.name) {
    return `the ${what} runs on ${pod.node === '' ? 'no node' : pod.node}, not on ${caller.node.name}`;
  }
  return null;
}

/** The signed node claim; in older clusters, which do not set it, the node of the caller's pod. */
function nodeOf(caller: TokenSubject, pods: PodRegistry): string | null {
  if (caller.node !== null) return caller.node.name;
  if (caller.pod === null) return null;
  const node = pods.find(caller.namespace, caller.pod.name, caller.pod.uid)?.node ?? '';
  return node === '' ? null : node;
}

function refused(reason: RefusalReason, detail: string): Grant {
  return { granted: false, reason, detail };
}

/** How long a certificate lives, or that the request asks for too long. Milliseconds. */
export function decideLifetime(
  requestedSeconds: number,
  limits: { readonly defaultMs: number; readonly maxMs: number },
): { readonly lifetimeMs: number } | { readonly tooLongMs: number } {
  if (requestedSeconds <= 0) return { lifetimeMs: limits.defaultMs };
  const requestedMs = requestedSeconds * 1000;
  return requestedMs > limits.maxMs ? { tooLongMs: requestedMs } : { lifetimeMs: requestedMs };
}
