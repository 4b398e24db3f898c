import type { PolicyOptions } from '../policy/authorization-policy.ts';

/** Settings of the mesh from the environment. A MeshConfig may replace the trust domain and the root namespace. */
export interface MeshSettings {
  readonly clusterId: string;
  readonly trustDomain: string;
  /** Domain of service host names, such as `cluster.local`. */
  readonly domain: string;
  readonly policies: PolicyOptions;
  /** True sends each workload behind a waypoint a policy that allows only that waypoint. */
  readonly allowFromWaypoint?: boolean;
}
