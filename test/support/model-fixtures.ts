/** Whole workloads, services and policies to vary in tests. */
import type { Authorization, Match } from '../../lib/policy/model.ts';
import type { Service, Workload } from '../../lib/state/model.ts';

/** A workload with the given fields, the others as a plain mesh pod has them. */
export function workloadFixture(fields: Partial<Workload> = {}): Workload {
  return {
    uid: 'Kubernetes//Pod/demo/web-1',
    name: 'web-1',
    namespace: 'demo',
    addresses: ['10.201.0.5'],
    hostname: '',
    network: '',
    tunnelProtocol: 'HBONE',
    trustDomain: 'cluster.local',
    serviceAccount: 'web',
    waypoint: null,
    networkGateway: null,
    node: 'node-1',
    canonicalName: 'web',
    canonicalRevision: 'latest',
    workloadType: 'pod',
    workloadName: 'web',
    nativeTunnel: false,
    applicationTunnel: null,
    services: {},
    authorizationPolicies: [],
    status: 'HEALTHY',
    clusterId: 'Kubernetes',
    locality: { region: '', zone: '', subzone: '' },
    networkMode: 'STANDARD',
    capacity: 1,
    ...fields,
  };
}

/** A service with the given fields, the others as a plain cluster service has them. */
export function serviceFixture(fields: Partial<Service> = {}): Service {
  return {
    name: 'web',
    namespace: 'demo',
    hostname: 'web.demo.svc.cluster.local',
    addresses: [{ network: '', ip: '10.96.0.10', length: null }],
    ports: { 80: 8080 },
    subjectAltNames: [],
    waypoint: null,
    weightedWaypoints: [],
    loadBalancing: null,
    ipFamilies: 'AUTOMATIC',
    canonical: true,
    visibility: 'PUBLIC',
    ...fields,
  };
}

/** A match with the given conditions and no other. */
export function matchFixture(fields: Partial<Match> = {}): Match {
  return {
    namespaces: [],
    notNamespaces: [],
    serviceAccounts: [],
    notServiceAccounts: [],
    principals: [],
    notPrincipals: [],
    sourceIps: [],
    notSourceIps: [],
    destinationIps: [],
    notDestinationIps: [],
    destinationPorts: [],
    notDestinationPorts: [],
    ...fields,
  };
}

/** A namespace-wide ALLOW without rules, with the given fields. */
export function authorizationFixture(fields: Partial<Authorization> = {}): Authorization {
  return {
    name: 'policy',
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'ALLOW',
    rules: [],
    dryRun: false,
    ...fields,
  };
}
