/** The policy that lets only a waypoint reach the workloads behind it (docs/spec/istiod-ambient.md §2.4). Pure. */
import type { Authorization } from '../../../lib/policy/model.ts';
import { EMPTY_MATCH } from './conversion.ts';

/** The name of the policy of a waypoint `namespace/name`. The sign `_` occurs in no name of an object. */
export function waypointPolicyName(waypoint: string): string {
  return `istio_allow_waypoint_${waypoint.replace('/', '_')}`;
}

/** The policy of a waypoint `namespace/name` whose pods run under these accounts. */
export function waypointPolicy(
  waypoint: string,
  accounts: readonly string[],
  trustDomain: string,
): Authorization {
  const namespace = waypoint.slice(0, waypoint.indexOf('/'));
  const principals = accounts.map((account) => ({
    kind: 'exact' as const,
    value: `${trustDomain}/ns/${namespace}/sa/${account}`,
  }));
  return {
    name: waypointPolicyName(waypoint),
    namespace,
    scope: 'WORKLOAD_SELECTOR',
    action: 'ALLOW',
    rules: [{ clauses: [{ matches: [{ ...EMPTY_MATCH, principals }] }] }],
    dryRun: false,
  };
}
