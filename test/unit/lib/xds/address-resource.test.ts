import test from 'ava';
import { istio } from '#proto/resources.js';
import {
  decodeAddress,
  encodeService,
  encodeWorkload,
  resourceName,
} from '../../../../lib/xds/resources/address.ts';
import { serviceFixture, workloadFixture } from '../../../support/model-fixtures.ts';

type WorkloadMessage = istio.workload.Workload.$Properties;
type ServiceMessage = istio.workload.Service.$Properties;

const workloadBytes = (workload: WorkloadMessage): Uint8Array =>
  istio.workload.Address.encode({ workload }).finish();
const serviceBytes = (service: ServiceMessage): Uint8Array =>
  istio.workload.Address.encode({ service }).finish();

test('a workload with every field survives the round trip', (t) => {
  const workload = workloadFixture({
    addresses: ['10.201.0.5', 'fd00:201:1::5'],
    hostname: 'host.example',
    network: 'net-a',
    trustDomain: 'other.td',
    waypoint: {
      destination: { kind: 'hostname', namespace: 'demo', hostname: 'waypoint.demo.svc' },
      hboneMtlsPort: 15008,
    },
    networkGateway: {
      destination: { kind: 'address', network: 'net-a', ip: '192.0.2.9' },
      hboneMtlsPort: 15009,
    },
    workloadType: 'deployment',
    nativeTunnel: true,
    applicationTunnel: { protocol: 'PROXY', port: 15088 },
    services: { 'demo/a.svc': { 80: 8080, 443: 8443 }, 'demo/b.svc': {} },
    authorizationPolicies: ['demo/one', 'istio-system/two'],
    status: 'UNHEALTHY',
    clusterId: 'c2',
    locality: { region: 'r', zone: 'z', subzone: 's' },
    networkMode: 'HOST_NETWORK',
    capacity: 7,
  });
  t.deepEqual(decodeAddress(encodeWorkload(workload)), { kind: 'workload', workload });
});

test('a service with every field survives the round trip', (t) => {
  const service = serviceFixture({
    addresses: [
      { network: 'net-a', ip: '10.96.0.10', length: null },
      { network: '', ip: '10.98.0.0', length: 16 },
      { network: '', ip: 'fd00::', length: 64 },
    ],
    ports: { 80: 0, 443: 8443 },
    subjectAltNames: ['spiffe://a/ns/b/sa/c'],
    weightedWaypoints: [
      {
        destination: {
          destination: { kind: 'address', network: '', ip: 'fd00::1' },
          hboneMtlsPort: 15008,
        },
        weight: 30,
      },
    ],
    loadBalancing: {
      routingPreference: ['NETWORK', 'REGION', 'ZONE', 'SUBZONE', 'NODE', 'CLUSTER'],
      mode: 'FAILOVER',
      healthPolicy: 'ALLOW_ALL',
    },
    ipFamilies: 'DUAL',
    canonical: false,
    visibility: 'NAMESPACE',
  });
  t.deepEqual(decodeAddress(encodeService(service)), { kind: 'service', service });
});

test('defaults are applied to what is absent', (t) => {
  const decoded = decodeAddress(workloadBytes({ uid: 'u' }));
  t.is(decoded.kind, 'workload');
  if (decoded.kind !== 'workload') return;
  t.like(decoded.workload, {
    trustDomain: 'cluster.local',
    serviceAccount: 'default',
    clusterId: 'Kubernetes',
    capacity: 1,
    tunnelProtocol: 'NONE',
    workloadType: 'deployment',
    applicationTunnel: null,
    waypoint: null,
  });
});

test('an explicit capacity of 0 is not the default', (t) => {
  const decoded = decodeAddress(workloadBytes({ uid: 'u', capacity: {} }));
  t.is(decoded.kind === 'workload' ? decoded.workload.capacity : null, 0);
  const zero = workloadFixture({ capacity: 0 });
  const again = decodeAddress(encodeWorkload(zero));
  t.is(again.kind === 'workload' ? again.workload.capacity : null, 0);
});

test('IPv4-mapped addresses become IPv4', (t) => {
  const mapped = Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1);
  const workload = decodeAddress(workloadBytes({ uid: 'u', addresses: [mapped] }));
  t.deepEqual(workload.kind === 'workload' ? workload.workload.addresses : null, ['10.0.0.1']);
  const service = decodeAddress(
    serviceBytes({ hostname: 'h', addresses: [{ address: mapped, length: 120 }] }),
  );
  t.deepEqual(service.kind === 'service' ? service.service.addresses : null, [
    { network: '', ip: '10.0.0.1', length: 24 },
  ]);
});

test('an unknown visibility is public', (t) => {
  const decoded = decodeAddress(serviceBytes({ hostname: 'h', visibility: 9 as never }));
  t.is(decoded.kind === 'service' ? decoded.service.visibility : null, 'PUBLIC');
});

test('application protocols are written where they are given', (t) => {
  const bytes = encodeService(serviceFixture(), () => 'GRPC');
  const message = istio.workload.Address.decode(bytes);
  t.is(Number(message.service?.ports?.[0]?.appProtocol), 3);
});

test('names of resources', (t) => {
  t.is(resourceName(workloadFixture()), 'Kubernetes//Pod/demo/web-1');
  t.is(resourceName(serviceFixture()), 'demo/web.demo.svc.cluster.local');
});

test('equal resources have equal bytes whatever the order of their maps', (t) => {
  const left = workloadFixture({ services: { 'a/x': { 1: 2 }, 'b/y': { 3: 4 } } });
  const right = workloadFixture({ services: { 'b/y': { 3: 4 }, 'a/x': { 1: 2 } } });
  t.deepEqual(encodeWorkload(left), encodeWorkload(right));
});

const five = new Uint8Array(5);
const refusals: readonly (readonly [string, Uint8Array, RegExp])[] = [
  ['bytes that are no message', Uint8Array.of(0xff), /^not a valid istio\.workload\.Address: /],
  ['an empty message', new Uint8Array(), /^address: must hold a workload or a service$/],
  ['no uid', workloadBytes({ name: 'x' }), /^workload\.uid: is required$/],
  ['no hostname', serviceBytes({ name: 'x' }), /^service\.hostname: is required$/],
  [
    'an address of a wrong length',
    workloadBytes({ uid: 'u', addresses: [Uint8Array.of(10, 0, 0, 1), five] }),
    /^workload\.addresses\[1\]: an IP address has 4 or 16 bytes, not 5$/,
  ],
  [
    'legacy mTLS',
    workloadBytes({ uid: 'u', tunnelProtocol: 2 }),
    /^workload\.tunnel_protocol: unknown value 2$/,
  ],
  [
    'an unknown workload type',
    workloadBytes({ uid: 'u', workloadType: 9 as never }),
    /^workload\.workload_type: unknown value 9$/,
  ],
  [
    'an unknown status',
    workloadBytes({ uid: 'u', status: 2 as never }),
    /^workload\.status: unknown value 2$/,
  ],
  [
    'an unknown network mode',
    workloadBytes({ uid: 'u', networkMode: -1 as never }),
    /^workload\.network_mode: unknown value -1$/,
  ],
  [
    'an unknown tunnel of the application',
    workloadBytes({ uid: 'u', applicationTunnel: { protocol: 4 as never } }),
    /^workload\.application_tunnel\.protocol: unknown value 4$/,
  ],
  [
    'a services key without a slash',
    workloadBytes({ uid: 'u', services: { web: {} } }),
    /^workload\.services\["web"\]: the key must be namespace\/hostname$/,
  ],
  [
    'a port that is none',
    workloadBytes({ uid: 'u', services: { 'a/b': { ports: [{ servicePort: 65_536 }] } } }),
    /^workload\.services\["a\/b"\]\.ports\[0\]\.service_port: 65536 is above 65535$/,
  ],
  [
    'a waypoint that names nothing',
    workloadBytes({ uid: 'u', waypoint: { hboneMtlsPort: 15008 } }),
    /^workload\.waypoint: must name a hostname or an address$/,
  ],
  [
    'a VIP of a wrong length',
    serviceBytes({ hostname: 'h', addresses: [{ address: five }] }),
    /^service\.addresses\[0\]\.address: an IP address has 4 or 16 bytes, not 5$/,
  ],
  [
    'a CIDR VIP that is too long',
    serviceBytes({ hostname: 'h', addresses: [{ address: new Uint8Array(4), length: 33 }] }),
    /^service\.addresses\[0\]\.length: 33 is above 32$/,
  ],
  [
    'an unspecified scope',
    serviceBytes({ hostname: 'h', loadBalancing: { routingPreference: [1, 0] } }),
    /^service\.load_balancing\.routing_preference\[1\]: unknown value 0$/,
  ],
  [
    'an unknown mode',
    serviceBytes({ hostname: 'h', loadBalancing: { mode: 4 as never } }),
    /^service\.load_balancing\.mode: unknown value 4$/,
  ],
  [
    'an unknown health policy',
    serviceBytes({ hostname: 'h', loadBalancing: { healthPolicy: 2 as never } }),
    /^service\.load_balancing\.health_policy: unknown value 2$/,
  ],
  [
    'unknown IP families',
    serviceBytes({ hostname: 'h', ipFamilies: 4 as never }),
    /^service\.ip_families: unknown value 4$/,
  ],
  [
    'a weighted waypoint without destination',
    serviceBytes({ hostname: 'h', weightedWaypoints: [{ weight: 1 }] }),
    /^service\.weighted_waypoints\[0\]\.destination: is required$/,
  ],
];

for (const [what, bytes, message] of refusals) {
  test(`refused: ${what}`, (t) => {
    t.throws(() => decodeAddress(bytes), { code: 'XDS_RESOURCE', message });
  });
}
