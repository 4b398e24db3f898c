import type { PolicyOptions } from '../policy/authorization-policy.ts';

/** Settings of the mesh that every resource depends on. */
export interface MeshSettings {
  readonly clusterId: string;
  readonly trustDomain: string;
  /** Domain of service host names, such as `cluster.local`. */
  readonly domain: string;
  readonly policies: PolicyOptions;
}
