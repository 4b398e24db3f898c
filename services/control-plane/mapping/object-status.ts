/** Status conditions as an output of the mapping (docs/spec/istiod-ambient.md §1.6, §2.1). Pure. */
import type { Kind } from '../manifests/kinds.ts';
import type { PolicyStatus } from '../policy/authorization-policy.ts';
import type { Binding } from './waypoint-binding.ts';

/** One condition; the writer adds the time of its last transition. */
export interface StatusCondition {
  readonly type: string;
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
}

/** The conditions of one object. */
export interface ObjectStatus {
  readonly kind: Kind;
  readonly namespace: string;
  readonly name: string;
  /** The generation that the conditions describe; null when the object has none. */
  readonly generation: number | null;
  readonly conditions: readonly StatusCondition[];
}

/** The condition types that the control plane owns; those that a status lacks are to be removed. */
export const OWNED_CONDITIONS: Readonly<Partial<Record<Kind, readonly string[]>>> = {
  Service: ['istio.io/WaypointBound'],
  ServiceEntry: [
    'istio.io/WaypointBound',
    'istio.io/WaypointMissing',
    'istio.io/VisibilityApplied',
  ],
  WorkloadEntry: ['istio.io/WaypointBound'],
  AuthorizationPolicy: ['ZtunnelAccepted', 'WaypointAccepted'],
};

/** Whether an object is bound to the waypoint that it asks for; none for an object that asks for none. */
export function bindingConditions(binding: Binding): StatusCondition[] {
  const { waypoint, refusal } = binding;
  const type = 'istio.io/WaypointBound';
  if (waypoint === null) {
    return refusal === null ? [] : [{ type, status: 'False', ...refusal }];
  }
  const parts = [`attached to waypoint ${waypoint.key}`];
  if (binding.ingress === true) parts.push('ingress traffic goes through the waypoint');
  if (binding.ingress === false) parts.push('ingress traffic does not go through the waypoint');
  if (refusal !== null) parts.push(`the canary is not attached: ${refusal.message}`);
  return [{ type, status: 'True', reason: 'WaypointAccepted', message: parts.join('; ') }];
}

/** The condition of a ServiceEntry with a wildcard host: only a waypoint can serve it. */
export function missingWaypoint(hosts: readonly string[], binding: Binding): StatusCondition[] {
  if (binding.waypoint !== null || !hosts.some((host) => host.startsWith('*'))) return [];
  return [
    {
      type: 'istio.io/WaypointMissing',
      status: 'True',
      reason: 'NoWaypointForWildcardService',
      message: 'a wildcard host is served only by a waypoint',
    },
  ];
}

/** The visibility of a ServiceEntry, where the mesh decides it. */
export function visibilityCondition(visibility: 'PUBLIC' | 'NAMESPACE' | 'NONE'): StatusCondition {
  const [reason, message] = {
    PUBLIC: ['Public', 'the whole mesh sees the entry'],
    NAMESPACE: ['Namespace', 'only its own namespace sees the entry'],
    NONE: ['None', 'nobody sees the entry'],
  }[visibility] as [string, string];
  return { type: 'istio.io/VisibilityApplied', status: 'True', reason, message };
}

/** The condition of a policy's status. */
export function policyCondition(status: PolicyStatus): StatusCondition {
  return {
    type: status.at === 'ztunnel' ? 'ZtunnelAccepted' : 'WaypointAccepted',
    status: status.accepted ? 'True' : 'False',
    reason: status.reason,
    message: status.message,
  };
}

/** One target of a policy, and whether it is bound. */
export interface TargetStatus {
  /** `Kind.group:namespace/name`. */
  readonly target: string;
  readonly bound: boolean;
  readonly reason: PolicyStatus['reason'];
  readonly message: string;
}

/** The one condition of a policy with these targets. */
export function targetsCondition(targets: readonly TargetStatus[]): StatusCondition {
  const type = 'WaypointAccepted';
  const [only] = targets;
  if (targets.length === 1 && only !== undefined) {
    return {
      type,
      status: only.bound ? 'True' : 'False',
      reason: only.reason,
      message: only.message,
    };
  }
  const unbound = targets.filter(({ bound }) => !bound);
  if (unbound.length === 0) {
    return { type, status: 'True', reason: 'Accepted', message: 'bound to every target' };
  }
  const message = unbound.map(({ target, message: why }) => `${target}: ${why}`).join('; ');
  return unbound.length === targets.length
    ? { type, status: 'False', reason: 'Invalid', message }
    : { type, status: 'True', reason: 'PartiallyInvalid', message };
}
