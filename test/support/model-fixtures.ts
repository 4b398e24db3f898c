/** Complete workloads, services and policies that tests vary. */
import type { Authorization, Match } from '../../lib/policy/model.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { EMPTY_MATCH } from '../../services/control-plane/policy/conversion.ts';

/** Makes a workload with the given fields; the others are those of a plain mesh pod. */
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

/** Makes a service with the given fields; the others are those of a plain cluster service. */
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

/** Makes a match with only the given conditions. */
export function matchFixture(fields: Partial<Match> = {}): Match {
  return { ...EMPTY_MATCH, ...fields };
}

/** Makes a namespace-wide ALLOW without rules, with the given fields. */
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
