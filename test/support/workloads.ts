import type { Service, Workload } from '../../lib/state/model.ts';

/** A workload with plain values, changed by `parts`. */
export function workload(parts: Partial<Workload> = {}): Workload {
  return {
    uid: 'cluster//Pod/demo/web-1',
    name: 'web-1',
    namespace: 'demo',
    addresses: ['10.128.0.2'],
    hostname: '',
    network: '',
    tunnelProtocol: 'HBONE',
    trustDomain: 'cluster.local',
    serviceAccount: 'web',
    waypoint: null,
    networkGateway: null,
    node: 'node-1',
    canonicalName: '',
    canonicalRevision: '',
    workloadType: 'deployment',
    workloadName: '',
    nativeTunnel: false,
    applicationTunnel: null,
    services: {},
    authorizationPolicies: [],
    status: 'HEALTHY',
    clusterId: '',
    locality: { region: '', zone: '', subzone: '' },
    networkMode: 'STANDARD',
    capacity: 1,
    ...parts,
  };
}

/** A service with plain values, changed by `parts`. */
export function service(parts: Partial<Service> = {}): Service {
  return {
    name: 'web',
    namespace: 'demo',
    hostname: 'web.demo.svc.cluster.local',
    addresses: [],
    ports: { 80: 8080 },
    subjectAltNames: [],
    waypoint: null,
    weightedWaypoints: [],
    loadBalancing: null,
    ipFamilies: 'AUTOMATIC',
    canonical: false,
    visibility: 'PUBLIC',
    ...parts,
  };
}
