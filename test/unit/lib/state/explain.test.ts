import test from 'ava';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import { explainResultSchema } from '../../../../lib/policy/explain.ts';
import type { ExplainResult } from '../../../../lib/policy/explain.ts';
import type { Authorization } from '../../../../lib/policy/model.ts';
import { explain } from '../../../../lib/state/explain.ts';
import { listServices, listWorkloads } from '../../../../lib/state/listing.ts';
import type { Service, Workload } from '../../../../lib/state/model.ts';
import { decodeAddress, resourceName } from '../../../../lib/xds/resources/address.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { encode, service, storeOf, vip, workload } from '../../../support/mesh-kit.ts';
import { exact, policy, presence } from '../../../support/policy-kit.ts';

const client = workload({
  uid: 'c//Pod/demo/client',
  serviceAccount: 'client',
  addresses: ['10.0.0.2'],
});
const outsider = workload({
  uid: 'c//Pod/plain/outsider',
  namespace: 'plain',
  addresses: ['10.0.1.9'],
  tunnelProtocol: 'NONE',
  node: 'node-2',
});
const KEY = 'demo/api.demo';
const api = service({ hostname: 'api.demo', addresses: [vip('10.96.0.1')] });
const apiPod = workload({
  uid: 'c//Pod/demo/api-1',
  serviceAccount: 'api',
  addresses: ['10.0.1.3'],
  node: 'node-2',
  services: { [KEY]: { 80: 8080 } },
});
const db = service({ hostname: 'db.demo', addresses: [vip('10.96.0.5')], ports: { 5432: 5432 } });
const dbPod = workload({
  uid: 'c//Pod/demo/db',
  addresses: ['10.0.1.5'],
  node: 'node-2',
  services: { 'demo/db.demo': { 5432: 5432 } },
});
const MESH = [client, outsider, api, apiPod, db, dbPod];

function ask(
  from: string,
  to: string,
  parts: {
    mesh?: readonly (Workload | Service)[];
    policies?: Readonly<Record<string, Authorization>>;
    sameNodeFastPath?: boolean;
  } = {},
): ExplainResult {
  const store = storeOf(parts.mesh ?? MESH);
  const policies = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  for (const [key, item] of Object.entries(parts.policies ?? {})) {
    policies.apply(key, encodeAuthorization(item));
  }
  const [namespace = '', pod = ''] = from.split('/');
  const [, toNamespace = '', name = '', port = ''] = /^(.*)\/(.*):(\d+)$/.exec(to) ?? [];
  const view = {
    get: store.lookup.bind(store),
    workloadsNamed: store.workloadsNamed.bind(store),
    servicesNamed: store.servicesNamed.bind(store),
  };
  const request = {
    from: { namespace, pod },
    to: { namespace: toNamespace, name, port: Number(port) },
  };
  return explainResultSchema.parse(
    explain(view, policies, request, {
      network: '',
      unknownReference: 'deny',
      waypointBypass: 'deny',
      sameNodeFastPath: parts.sameNodeFastPath ?? false,
    }),
  );
}

const onlyClient = policy(
  'ALLOW',
  [[[{ principals: [exact('cluster.local/ns/demo/sa/client')], destinationPorts: [8080] }]]],
  { namespace: 'demo' },
);

test('a service over HBONE: verdict, policy and rule, next hop, identities', (t) => {
  t.deepEqual(ask('demo/client', 'demo/api:80', { policies: { 'demo/only-client': onlyClient } }), {
    allowed: true,
    policy: 'demo/only-client',
    rule: 0,
    path: 'hbone',
    reason: 'allowed',
    from: 'spiffe://cluster.local/ns/demo/sa/client',
    to: '10.0.1.3:8080',
    nextHop: '10.0.1.3:15008',
    workload: 'c//Pod/demo/api-1',
    service: KEY,
    expectedSans: ['spiffe://cluster.local/ns/demo/sa/api'],
    dryRun: [],
    detail:
      'allowed by policy demo/only-client, rule 0 (workload c//Pod/demo/api-1 was chosen for service demo/api.demo)',
  });
});

test('a pod by name, on the same node, refused', (t) => {
  const policies = { 'demo/only-client': onlyClient };
  for (const sameNodeFastPath of [false, true]) {
    t.like(ask('demo/db', 'demo/api-1:8080', { policies, sameNodeFastPath }), {
      allowed: false,
      policy: null,
      reason: 'not-allowed',
      path: sameNodeFastPath ? 'same-node' : 'hbone',
      service: null,
    });
  }
});

test('a service goes before a pod of its name where it defines the port', (t) => {
  t.like(ask('demo/client', 'demo/db:5432'), { service: 'demo/db.demo', to: '10.0.1.5:5432' });
  t.like(ask('demo/client', 'demo/db:8080'), { service: null, to: '10.0.1.5:8080' });
});

test('a destination outside the mesh is reached in plain TCP, and nothing is enforced there', (t) => {
  t.like(
    ask('demo/client', 'plain/outsider:8080', {
      policies: { 'plain/deny': policy('DENY', [[]], { namespace: 'plain' }) },
    }),
    {
      allowed: true,
      path: 'passthrough',
      reason: 'not-enforced',
      from: null,
      to: '10.0.1.9:8080',
    },
  );
});

test('a source outside the mesh has no identity, and STRICT refuses it', (t) => {
  const strict = policy('DENY', [[[{ notPrincipals: [presence] }]]], { namespace: 'demo' });
  const refused = ask('plain/outsider', 'demo/api:80', { policies: { 'demo/strict': strict } });
  t.like(refused, {
    allowed: false,
    policy: 'demo/strict',
    path: 'passthrough',
    from: null,
    nextHop: '10.0.1.3:8080',
    service: KEY,
  });
  t.true(ask('plain/outsider', 'demo/api:80').allowed);
});

test("through a waypoint the verdict is the waypoint's", (t) => {
  const wp = workload({ uid: 'c//Pod/demo/wp', serviceAccount: 'wp', addresses: ['10.0.1.50'] });
  const waypoint = {
    destination: { kind: 'address', network: '', ip: '10.0.1.50' },
    hboneMtlsPort: 15_008,
  } as const;
  t.like(ask('demo/client', 'demo/api:80', { mesh: [client, { ...api, waypoint }, apiPod, wp] }), {
    path: 'waypoint',
    nextHop: '10.0.1.50:15008',
    workload: 'c//Pod/demo/wp',
    service: KEY,
    expectedSans: ['spiffe://cluster.local/ns/demo/sa/wp'],
  });
});

test('what a waypoint guards refuses plaintext that cannot have passed it', (t) => {
  const wp = workload({ uid: 'c//Pod/demo/wp', serviceAccount: 'wp', addresses: ['10.0.1.50'] });
  const waypoint = {
    destination: { kind: 'address', network: '', ip: '10.0.1.50' },
    hboneMtlsPort: 15_008,
  } as const;
  const mesh = [client, outsider, { ...dbPod, waypoint }, wp];
  const refused = ask('plain/outsider', 'demo/db:8080', { mesh });
  t.like(refused, { allowed: false, path: 'passthrough', reason: 'waypoint-bypassed' });
  t.regex(refused.detail, /10\.0\.1\.50:15008/);
  t.like(ask('demo/client', 'demo/db:8080', { mesh }), { path: 'waypoint', allowed: true });
});

test('a service of another network is reached through its gateway by a tunnel inside a tunnel', (t) => {
  const gateway = workload({
    uid: 'c//Pod/demo/gw',
    serviceAccount: 'gw',
    addresses: ['10.0.9.9'],
  });
  const far: Workload = {
    ...apiPod,
    network: 'n2',
    addresses: [],
    networkGateway: {
      destination: { kind: 'address', network: '', ip: '10.0.9.9' },
      hboneMtlsPort: 15_008,
    },
  };
  const sans = ['spiffe://cluster.local/ns/demo/sa/api'];
  const named = ask('demo/client', 'demo/api:80', {
    mesh: [client, { ...api, subjectAltNames: sans }, far, gateway],
  });
  t.like(named, {
    allowed: true,
    path: 'double-hbone',
    reason: 'not-enforced',
    nextHop: '10.0.9.9:15008',
    workload: 'c//Pod/demo/gw',
    service: KEY,
    expectedSans: ['spiffe://cluster.local/ns/demo/sa/gw'],
  });
  t.regex(named.detail, /sa\/api must answer/);
  const nameless = ask('demo/client', 'demo/api:80', { mesh: [client, api, far, gateway] });
  t.like(nameless, { allowed: false, path: 'double-hbone', reason: 'no-identities' });
});

test('a listed policy nobody knows refuses, and is named', (t) => {
  const lists = { ...apiPod, authorizationPolicies: ['demo/gone'] };
  t.like(ask('demo/client', 'demo/api:80', { mesh: [client, api, lists] }), {
    allowed: false,
    reason: 'unknown-reference',
    policy: 'demo/gone',
  });
});

test('unknown names and services without endpoints have no path, and why', (t) => {
  t.like(ask('demo/nobody', 'demo/api:80'), {
    path: 'none',
    reason: 'unknown-source',
    allowed: false,
  });
  t.like(ask('demo/client', 'demo/nothing:80'), { path: 'none', reason: 'unknown-destination' });
  t.like(ask('demo/client', 'demo/api:80', { mesh: [client, api] }), {
    path: 'none',
    reason: 'no-upstream',
  });
});

test("a headless service is explained by an endpoint's own address", (t) => {
  t.like(ask('demo/client', 'demo/api:80', { mesh: [client, { ...api, addresses: [] }, apiPod] }), {
    path: 'hbone',
    to: '10.0.1.3:8080',
  });
});

test('listings have the shapes of the command line, and name what cannot be read', (t) => {
  const rows = MESH.map((item): [string, Uint8Array] => [resourceName(item), encode(item)]);
  const withBad = [...rows, ['broken', new Uint8Array([255])] as const];
  const workloads = listWorkloads(withBad, decodeAddress);
  t.deepEqual(
    workloads.unreadable.map(({ key }) => key),
    ['broken'],
  );
  t.deepEqual(
    workloads.lines.map(({ name }) => name),
    ['api-1', 'client', 'db', 'outsider'],
  );
  t.deepEqual(workloads.lines[0], {
    uid: 'c//Pod/demo/api-1',
    name: 'api-1',
    namespace: 'demo',
    node: 'node-2',
    addresses: ['10.0.1.3'],
    protocol: 'HBONE',
    serviceAccount: 'api',
    status: 'HEALTHY',
    services: [KEY],
    policies: [],
  });
  t.is(workloads.lines[3]?.protocol, 'TCP');
  t.deepEqual(listServices(rows, decodeAddress).lines[0], {
    namespace: 'demo',
    name: 'api',
    hostname: 'api.demo',
    vips: ['/10.96.0.1'],
    ports: { 80: 8080 },
    endpoints: ['c//Pod/demo/api-1'],
  });
});
