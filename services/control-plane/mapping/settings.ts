import type { PolicyOptions } from '../policy/authorization-policy.ts';

/** Facts about the mesh that go into every resource. */
export interface MeshSettings {
  readonly clusterId: string;
  readonly trustDomain: string;
  /** Last part of service host names, `cluster.local`. */
  readonly domain: string;
  readonly policies: PolicyOptions;
}
