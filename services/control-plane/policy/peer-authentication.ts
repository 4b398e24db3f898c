/** PeerAuthentication → DENY policies, and the policy each workload lists (docs/spec/istiod-ambient.md §2.3). Pure. */
import type { Authorization } from '../../../lib/policy/model.ts';
import type { PeerAuthentication } from '../manifests/kinds.ts';
import { byAge, namespaceOf } from '../manifests/kinds.ts';
import { EMPTY_MATCH } from './conversion.ts';

type Mode = 'STRICT' | 'PERMISSIVE';
type Clause = Authorization['rules'][number]['clauses'][number];

/** Name of the policy that refuses plaintext on every port. */
const STATIC_STRICT_NAME = 'istio_converted_static_strict';
const CONVERTED_PREFIX = 'converted_peer_authentication_';

const NO_PRINCIPAL: Clause = {
  matches: [{ ...EMPTY_MATCH, notPrincipals: [{ kind: 'presence' }] }],
};

/** The PeerAuthentications that apply to one namespace. */
export interface PeerAuthenticationLevels {
  readonly rootNamespace: string;
  /** In the root namespace, without selector. */
  readonly mesh: PeerAuthentication | null;
  /** In the namespace, without selector. */
  readonly namespace: PeerAuthentication | null;
  /** In the namespace, with selector, oldest first; empty for the root namespace. */
  readonly workload: readonly PeerAuthentication[];
}

/** Sorts the PeerAuthentications of a namespace and of the root namespace into levels. The oldest counts at each level. */
export function peerAuthenticationLevels(
  namespace: string,
  own: readonly PeerAuthentication[],
  root: readonly PeerAuthentication[],
  rootNamespace: string,
): PeerAuthenticationLevels {
  const oldest = (list: readonly PeerAuthentication[]): PeerAuthentication | null =>
    list.filter((item) => !hasSelector(item)).toSorted(byAge)[0] ?? null;
  return {
    rootNamespace,
    mesh: oldest(root),
    namespace: namespace === rootNamespace ? null : oldest(own),
    workload: namespace === rootNamespace ? [] : own.filter(hasSelector).toSorted(byAge),
  };
}

/** The policy that every STRICT workload lists. It is sent while any PeerAuthentication exists. */
export function staticStrictPolicy(rootNamespace: string): Authorization {
  return {
    name: STATIC_STRICT_NAME,
    namespace: rootNamespace,
    scope: 'WORKLOAD_SELECTOR',
    action: 'DENY',
    rules: [{ clauses: [NO_PRINCIPAL] }],
    dryRun: false,
  };
}

/** The policy of a PeerAuthentication with port modes; null when the static policy or no policy is enough. */
export function convertedPeerAuthentication(
  policy: PeerAuthentication,
  levels: PeerAuthenticationLevels,
): Authorization | null {
  const top = modeOf(policy) ?? inheritedMode(levels);
  const ports = Object.entries(policy.spec.portLevelMtls ?? {})
    .map(([port, { mode }]) => ({ port: Number(port), mode: plainMode(mode) ?? top }))
    .filter(({ mode }) => mode !== top)
    .map(({ port }) => port)
    .toSorted((left, right) => left - right);
  if (ports.length === 0) return null;
  const rules =
    top === 'STRICT'
      ? [
          {
            clauses: [
              NO_PRINCIPAL,
              ...ports.map((port) => ({
                matches: [{ ...EMPTY_MATCH, notDestinationPorts: [port] }],
              })),
            ],
          },
        ]
      : ports.map((port) => ({
          clauses: [NO_PRINCIPAL, { matches: [{ ...EMPTY_MATCH, destinationPorts: [port] }] }],
        }));
  return {
    name: `${CONVERTED_PREFIX}${policy.metadata.name}`,
    namespace: namespaceOf(policy),
    scope: 'WORKLOAD_SELECTOR',
    action: 'DENY',
    rules,
    dryRun: false,
  };
}

/** The key of the policy that a workload with these labels lists; null when plaintext is allowed on every port. */
export function peerAuthenticationKey(
  labels: Readonly<Record<string, string>>,
  levels: PeerAuthenticationLevels,
): string | null {
  const own = levels.workload.find((policy) =>
    hasLabels(policy.spec.selector?.matchLabels ?? {}, labels),
  );
  if (own !== undefined) {
    const converted = convertedPeerAuthentication(own, levels);
    if (converted !== null) return `${converted.namespace}/${converted.name}`;
  }
  const mode = (own === undefined ? null : modeOf(own)) ?? inheritedMode(levels);
  return mode === 'STRICT' ? `${levels.rootNamespace}/${STATIC_STRICT_NAME}` : null;
}

function inheritedMode(levels: PeerAuthenticationLevels): Mode {
  return modeOf(levels.namespace) ?? modeOf(levels.mesh) ?? 'PERMISSIVE';
}

function modeOf(policy: PeerAuthentication | null): Mode | null {
  return plainMode(policy?.spec.mtls?.mode);
}

/** UNSET inherits; DISABLE is treated like PERMISSIVE. A mode that nobody knows refuses plaintext. */
function plainMode(mode: string | undefined): Mode | null {
  if (mode === undefined || mode === 'UNSET') return null;
  return mode === 'PERMISSIVE' || mode === 'DISABLE' ? 'PERMISSIVE' : 'STRICT';
}

function hasLabels(
  wanted: Readonly<Record<string, string>>,
  labels: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(wanted).every(([key, value]) => labels[key] === value);
}

function hasSelector(policy: PeerAuthentication): boolean {
  return Object.keys(policy.spec.selector?.matchLabels ?? {}).length > 0;
}
