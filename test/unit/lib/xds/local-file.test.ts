import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { parseLocalFile } from '../../../../lib/xds/local/parse.ts';
import { decodeAddress } from '../../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../../lib/xds/resources/authorization.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../../lib/xds/type-urls.ts';

const EXAMPLE = `
workloads:
- uid: c1//Pod/shop/cart-0
  name: cart-0
  namespace: shop
  serviceAccount: cart
  trustDomain: cluster.local
  workloadIps: ["10.20.0.7", "FD00::0:7"]
  protocol: HBONE
  node: node-a
  status: Unhealthy
  networkMode: HostNetwork
  waypoint: {destination: "/10.96.0.9", hboneMtlsPort: 15008}
  networkGateway: {destination: "shop/gw.shop.svc", hboneMtlsPort: 15009}
  locality: {region: r, zone: z}
  services:
    shop/cart.shop.svc.cluster.local: {80: 8080}
services:
- name: cart
  namespace: shop
  hostname: cart.shop.svc.cluster.local
  vips: ["/10.96.4.4", "net/fd00::9"]
  cidrVips: [{network: "", cidr: 10.97.0.0/16}]
  ports: {80: 8080}
  loadBalancer: {routingPreferences: [Region, Zone], mode: Failover, healthPolicy: AllowAll}
  ipFamilies: Dual
  visibility: Namespace
  weightedWaypoints: [{destination: {destination: "/10.1.1.1", hboneMtlsPort: 15008}, weight: 3}]
policies:
- name: only-web
  namespace: shop
  scope: Namespace
  action: Allow
  dryRun: false
  rules: [[[{principals: [!Exact cluster.local/ns/shop/sa/web, !Prefix a, !Suffix b, !Presence []],
             notSourceIps: [10.0.0.0/8, "fd00::1"], destinationPorts: [80],
             serviceAccounts: [{namespace: shop, serviceAccount: web}]}]]]
`;

test('the documented example becomes the resources a control plane would send', (t) => {
  const resources = parseLocalFile(EXAMPLE, 'mesh.yaml');
  t.deepEqual(
    resources.map(({ type, name }) => [type, name]),
    [
      [ADDRESS_TYPE, 'c1//Pod/shop/cart-0'],
      [ADDRESS_TYPE, 'shop/cart.shop.svc.cluster.local'],
      [AUTHORIZATION_TYPE, 'shop/only-web'],
    ],
  );
  const [workload, service, policy] = resources.map(({ bytes }) => bytes);
  const decoded = decodeAddress(workload ?? new Uint8Array());
  t.is(decoded.kind, 'workload');
  if (decoded.kind !== 'workload') return;
  t.like(decoded.workload, {
    uid: 'c1//Pod/shop/cart-0',
    addresses: ['10.20.0.7', 'fd00::7'],
    tunnelProtocol: 'HBONE',
    status: 'UNHEALTHY',
    networkMode: 'HOST_NETWORK',
    waypoint: {
      destination: { kind: 'address', network: '', ip: '10.96.0.9' },
      hboneMtlsPort: 15008,
    },
    networkGateway: {
      destination: { kind: 'hostname', namespace: 'shop', hostname: 'gw.shop.svc' },
      hboneMtlsPort: 15009,
    },
    services: { 'shop/cart.shop.svc.cluster.local': { 80: 8080 } },
    locality: { region: 'r', zone: 'z', subzone: '' },
  });
  const other = decodeAddress(service ?? new Uint8Array());
  if (other.kind !== 'service') return t.fail();
  t.like(other.service, {
    addresses: [
      { network: '', ip: '10.96.4.4', length: null },
      { network: 'net', ip: 'fd00::9', length: null },
      { network: '', ip: '10.97.0.0', length: 16 },
    ],
    ports: { 80: 8080 },
    loadBalancing: {
      routingPreference: ['REGION', 'ZONE'],
      mode: 'FAILOVER',
      healthPolicy: 'ALLOW_ALL',
    },
    ipFamilies: 'DUAL',
    visibility: 'NAMESPACE',
  });
  t.is(other.service.weightedWaypoints[0]?.weight, 3);
  const authorization = decodeAuthorization(policy ?? new Uint8Array());
  t.is(authorization.scope, 'NAMESPACE');
  const match = authorization.rules[0]?.clauses[0]?.matches[0];
  t.deepEqual(match?.principals, [
    { kind: 'exact', value: 'cluster.local/ns/shop/sa/web' },
    { kind: 'prefix', value: 'a' },
    { kind: 'suffix', value: 'b' },
    { kind: 'presence' },
  ]);
  t.deepEqual(match?.notSourceIps, [
    { address: '10.0.0.0', length: 8 },
    { address: 'fd00::1', length: 128 },
  ]);
});

test('an empty file is an empty mesh', (t) => {
  t.deepEqual(parseLocalFile('', 'x'), []);
  t.deepEqual(parseLocalFile('workloads: []\n', 'x'), []);
});

test('every problem is named with its place', (t) => {
  const cases: readonly (readonly [string, RegExp])[] = [
    ['workload: []', /mesh\.yaml: the file: .*"workload"/],
    ['workloads: [{namespace: a, services: {}}]', /workloads\[0\]\.workloadIps/],
    [
      'workloads: [{namespace: a, services: {}, workloadIps: [x]}]',
      /workloadIps\[0\]: must be an IP address/,
    ],
    [
      'services: [{name: a, namespace: b, hostname: c, vips: [10.0.0.1], ports: {}}]',
      /vips\[0\]: must be network\/ip/,
    ],
    [
      'services: [{name: a, namespace: b, hostname: c, vips: [], ports: {}, extra: 1}]',
      /services\[0\]: .*"extra"/,
    ],
    ['services: [{name: a, namespace: b, hostname: c, vips: [], ports: {80: 99999}}]', /ports\.80/],
    [
      'services: [{name: a, namespace: b, hostname: c, vips: [], ports: {}, cidrVips: [{network: "", cidr: 10.0.0.0/40}]}]',
      /services\[0\]: prefix length/,
    ],
    [
      'policies: [{name: a, namespace: b, scope: Global, action: Maybe, rules: []}]',
      /policies\[0\]\.action/,
    ],
    [
      'policies: [{name: a, namespace: b, scope: Global, action: Deny, rules: [[[{principals: [plain]}]]]}]',
      /principals\[0\]: must be !Exact/,
    ],
    [
      'policies: [{name: a, namespace: b, scope: Global, action: Deny, rules: [[[{principals: [!Other x]}]]]}]',
      /Unresolved tag: !Other/,
    ],
    [
      'policies: [{name: a, namespace: b, scope: Global, action: Deny, rules: [[[{sourceIps: [x]}]]]}]',
      /policies\[0\]: .*address/,
    ],
    ['workloads: [', /line 1/],
    ['workloads: []\nworkloads: []\n', /line 2/],
  ];
  for (const [text, message] of cases) {
    const error = t.throws(
      () => parseLocalFile(text, 'mesh.yaml'),
      { instanceOf: MeshError, message },
      text,
    );
    t.is(error.code, 'CONFIG_INVALID');
    t.true(error.message.startsWith('mesh.yaml: '), error.message);
  }
  const policy = '{name: a, namespace: b, scope: Global, action: Deny, rules: []}';
  t.throws(() => parseLocalFile(`policies: [${policy}, ${policy}]`, 'x'), {
    message: /b\/a is defined twice/,
  });
});
