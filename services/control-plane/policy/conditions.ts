import type { AuthorizationPolicy } from '../manifests/kinds.ts';
import { convertPolicy } from './authorization-policy.ts';
import type { PolicyOptions } from './authorization-policy.ts';

/** A condition of an AuthorizationPolicy's status. */
export interface PolicyCondition {
  readonly type: 'ZtunnelAccepted' | 'WaypointAccepted';
  readonly status: 'True' | 'False';
  readonly reason: string;
  readonly message: string;
  readonly lastTransitionTime: string;
}

/**
 * The conditions of a policy: whether it is enforced as written. A condition keeps its transition time while its status
 * stays the same.
 */
export function policyConditions(
  policy: AuthorizationPolicy,
  options: PolicyOptions,
  existing: AuthorizationPolicy | null,
  now: string,
): PolicyCondition[] {
  const { status } = convertPolicy(policy, options);
  const type = status.at === 'ztunnel' ? 'ZtunnelAccepted' : 'WaypointAccepted';
  const word = status.accepted ? 'True' : 'False';
  const before = conditionsOf(existing).find((condition) => condition.type === type);
  return [
    {
      type,
      status: word,
      reason: status.reason,
      message: status.message,
      lastTransitionTime: before?.status === word ? before.lastTransitionTime : now,
    },
  ];
}

/** The conditions in a stored policy's status. */
export function conditionsOf(policy: AuthorizationPolicy | null): readonly PolicyCondition[] {
  const conditions: unknown = policy?.status?.['conditions'];
  return Array.isArray(conditions) ? (conditions as PolicyCondition[]) : [];
}
