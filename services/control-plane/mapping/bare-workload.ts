/** Workloads of which little more than an address is known: of EndpointSlices and of network gateways. Pure. */
import type { Workload } from '../../../lib/state/model.ts';
import type { Mesh } from './mesh.ts';

/** A workload with these fields and otherwise without identity, policies and waypoint. */
export function bareWorkload(
  mesh: Mesh,
  fields: Pick<Workload, 'uid' | 'name' | 'namespace' | 'addresses'> & Partial<Workload>,
): Workload {
  return {
    hostname: '',
    network: mesh.network,
    tunnelProtocol: 'NONE',
    nativeTunnel: false,
    trustDomain: mesh.trustDomain,
    serviceAccount: '',
    waypoint: null,
    networkGateway: null,
    node: '',
    canonicalName: '',
    canonicalRevision: '',
    workloadType: 'deployment',
    workloadName: '',
    applicationTunnel: null,
    services: {},
    authorizationPolicies: [],
    status: 'HEALTHY',
    clusterId: mesh.clusterId,
    locality: { region: '', zone: '', subzone: '' },
    networkMode: 'STANDARD',
    capacity: 1,
    ...fields,
  };
}
