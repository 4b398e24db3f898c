/** spec: istiod-ambient.md §1.4, spec: istiod-ambient.md §1.5, spec: istiod-ambient.md §1.3. */
import test from 'ava';
import type { Service } from '../../../../lib/state/model.ts';
import { TestMesh, podManifest } from '../../../support/mesh-objects.ts';

const service = (spec: string, metadata = ''): string =>
  `apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: demo, ${metadata}}\nspec: {ports: [{port: 80}], ${spec}}\n`;
const WEB = 'demo/web.demo.svc.cluster.local';

function mapped(spec: string, metadata = ''): Service | undefined {
  const mesh = new TestMesh();
  mesh.apply(service(spec, metadata));
  return mesh.service(WEB);
}

test('a Service becomes a service', (t) => {
  t.deepEqual(mapped("clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1, 'FD00:96::1']"), {
    name: 'web',
    namespace: 'demo',
    hostname: 'web.demo.svc.cluster.local',
    addresses: [
      { network: '', ip: '10.96.1.1', length: null },
      { network: '', ip: 'fd00:96::1', length: null },
    ],
    ports: { 80: 80 },
    subjectAltNames: [],
    waypoint: null,
    weightedWaypoints: [],
    loadBalancing: null,
    ipFamilies: 'AUTOMATIC',
    canonical: true,
    visibility: 'PUBLIC',
  });
});

test('a headless Service has no addresses, an ExternalName one is not sent', (t) => {
  t.deepEqual(mapped('clusterIP: None')?.addresses, []);
  t.is(mapped('type: ExternalName, externalName: x.example'), undefined);
});

test('named target ports are left to the endpoints', (t) => {
  const mesh = new TestMesh();
  mesh.apply(service('').replace('{port: 80}', '{port: 80, targetPort: http}'));
  t.deepEqual(mesh.service(WEB)?.ports, { 80: 0 });
});

const balancing: readonly (readonly [
  spec: string,
  metadata: string,
  expected: Service['loadBalancing'],
])[] = [
  [
    'internalTrafficPolicy: Local',
    '',
    { mode: 'STRICT', routingPreference: ['NODE'], healthPolicy: 'ONLY_HEALTHY' },
  ],
  [
    'internalTrafficPolicy: Local, trafficDistribution: PreferClose',
    '',
    { mode: 'STRICT', routingPreference: ['NODE'], healthPolicy: 'ONLY_HEALTHY' },
  ],
  [
    'trafficDistribution: PreferClose',
    '',
    {
      mode: 'FAILOVER',
      routingPreference: ['NETWORK', 'REGION', 'ZONE'],
      healthPolicy: 'ONLY_HEALTHY',
    },
  ],
  [
    'trafficDistribution: PreferSameZone',
    '',
    {
      mode: 'FAILOVER',
      routingPreference: ['NETWORK', 'REGION', 'ZONE'],
      healthPolicy: 'ONLY_HEALTHY',
    },
  ],
  [
    'trafficDistribution: PreferSameNode',
    '',
    {
      mode: 'FAILOVER',
      routingPreference: ['NETWORK', 'REGION', 'ZONE', 'SUBZONE', 'NODE'],
      healthPolicy: 'ONLY_HEALTHY',
    },
  ],
  [
    '',
    'annotations: {networking.istio.io/traffic-distribution: prefersamenode}',
    {
      mode: 'FAILOVER',
      routingPreference: ['NETWORK', 'REGION', 'ZONE', 'SUBZONE', 'NODE'],
      healthPolicy: 'ONLY_HEALTHY',
    },
  ],
  [
    'publishNotReadyAddresses: true',
    '',
    { mode: 'UNSPECIFIED', routingPreference: [], healthPolicy: 'ALLOW_ALL' },
  ],
  [
    'publishNotReadyAddresses: true, internalTrafficPolicy: Local',
    '',
    { mode: 'STRICT', routingPreference: ['NODE'], healthPolicy: 'ALLOW_ALL' },
  ],
];
for (const [spec, metadata, expected] of balancing) {
  test(`load balancing of ${spec}${metadata}`, (t) => {
    t.deepEqual(mapped(spec, metadata)?.loadBalancing, expected);
  });
}

test('the namespace may ask for a traffic distribution; the service overrides it', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    'apiVersion: v1\nkind: Namespace\nmetadata: {name: demo, annotations: {networking.istio.io/traffic-distribution: PreferClose}}',
  );
  mesh.apply(service(''));
  t.is(mesh.service(WEB)?.loadBalancing?.routingPreference.length, 3);
  mesh.apply(service('trafficDistribution: PreferSameNode'));
  t.is(mesh.service(WEB)?.loadBalancing?.routingPreference.length, 5);
});

test('IP families follow the policy', (t) => {
  t.is(mapped('ipFamilyPolicy: SingleStack')?.ipFamilies, 'IPV4_ONLY');
  t.is(mapped('ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]')?.ipFamilies, 'IPV6_ONLY');
  t.is(mapped('ipFamilyPolicy: PreferDualStack')?.ipFamilies, 'DUAL');
  t.is(mapped('ipFamilies: [IPv6]')?.ipFamilies, 'IPV6_ONLY');
  t.is(mapped('ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4]')?.ipFamilies, 'DUAL');
  // The preference is not granted: there is only one family.
  const preferred = 'clusterIP: None, ipFamilyPolicy: PreferDualStack';
  t.is(mapped(`${preferred}, ipFamilies: [IPv4]`)?.ipFamilies, 'IPV4_ONLY');
  t.is(mapped(`${preferred}, ipFamilies: [IPv6]`)?.ipFamilies, 'IPV6_ONLY');
  t.is(mapped(`${preferred}, ipFamilies: [IPv6, IPv4]`)?.ipFamilies, 'DUAL');
  const granted = mapped('ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4]');
  t.like(granted, { ipFamilies: 'DUAL', addresses: { length: 2 } });
  const only = mapped('ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]')?.addresses ?? [];
  t.deepEqual(
    only.map(({ ip }) => ip.startsWith('fd00:96::')),
    [true],
  );
});

const entry = (spec: string, metadata = 'name: ext'): string =>
  `apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {namespace: demo, ${metadata}}\nspec: {ports: [{number: 443, name: tls, targetPort: 8443}, {number: 80, name: http}], ${spec}}\n`;

test('a ServiceEntry becomes one service for each host, with addresses of its own', (t) => {
  const mesh = new TestMesh();
  mesh.apply(entry('hosts: [a.example, b.example], resolution: STATIC, subjectAltNames: [x]'));
  const first = mesh.service('demo/a.example');
  const second = mesh.service('demo/b.example');
  t.like(first, {
    ports: { 80: 80, 443: 8443 },
    canonical: true,
    subjectAltNames: ['x'],
    visibility: 'PUBLIC',
  });
  const ips = [...(first?.addresses ?? []), ...(second?.addresses ?? [])].map(({ ip }) => ip);
  t.is(new Set(ips).size, 4);
  t.deepEqual(
    ips.map((ip) => ip.startsWith('240.240.') || ip.startsWith('2001:2::')),
    [true, true, true, true],
  );
  mesh.apply(entry('hosts: [a.example, c.example], resolution: STATIC'));
  t.deepEqual(mesh.service('demo/a.example')?.addresses, first?.addresses);
  t.is(mesh.service('demo/b.example'), undefined);
});

test('which hosts get addresses', (t) => {
  const addresses = (spec: string, metadata?: string): number => {
    const mesh = new TestMesh();
    mesh.apply(
      entry(
        `hosts: ["${spec.includes('WILD') ? '*.' : ''}a.example"], ${spec.replace('WILD, ', '')}`,
        metadata,
      ),
    );
    return (
      mesh.service(`demo/${spec.includes('WILD') ? '*.' : ''}a.example`)?.addresses.length ?? -1
    );
  };
  t.is(addresses('resolution: NONE'), 0);
  t.is(addresses('resolution: DNS'), 2);
  t.is(addresses('WILD, resolution: STATIC'), 0);
  t.is(addresses('WILD, resolution: DYNAMIC_DNS'), 2);
  t.is(
    addresses(
      'resolution: STATIC',
      "name: ext, labels: {networking.istio.io/enable-autoallocate-ip: 'false'}",
    ),
    0,
  );
});

test('given addresses are used, ranges with their length', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    entry('hosts: [a.example], resolution: STATIC, addresses: [192.0.2.1, 198.51.100.7/24]'),
  );
  t.deepEqual(mesh.service('demo/a.example')?.addresses, [
    { network: '', ip: '192.0.2.1', length: null },
    { network: '', ip: '198.51.100.0', length: 24 },
  ]);
});

test('resolution NONE passes through', (t) => {
  const mesh = new TestMesh();
  mesh.apply(entry('hosts: [a.example]'));
  t.like(mesh.service('demo/a.example')?.loadBalancing, {
    mode: 'PASSTHROUGH',
    healthPolicy: 'ALLOW_ALL',
  });
});

test('who sees an entry', (t) => {
  const mesh = new TestMesh();
  mesh.apply(entry('hosts: [a.example], exportTo: ["."]'));
  t.like(mesh.service('demo/a.example'), { visibility: 'NAMESPACE', canonical: false });
  mesh.apply(entry('hosts: [a.example], exportTo: ["~"]'));
  t.is(mesh.service('demo/a.example'), undefined);
});

test('one claim to a host counts in a namespace, and one in the mesh', (t) => {
  const mesh = new TestMesh();
  mesh.apply(entry('hosts: [a.example], addresses: [192.0.2.1]', 'name: older'));
  mesh.apply(entry('hosts: [a.example], addresses: [192.0.2.2]', 'name: younger'));
  mesh.apply(
    entry('hosts: [a.example]', 'name: foreign').replace('namespace: demo', 'namespace: other'),
  );
  t.like(mesh.service('demo/a.example'), { name: 'older', canonical: true });
  t.like(mesh.service('other/a.example'), { canonical: false });
  mesh.remove('ServiceEntry/demo/older');
  mesh.remove('ServiceEntry/demo/younger');
  t.like(mesh.service('other/a.example'), { canonical: true });
  mesh.apply(
    entry('hosts: [web.demo.svc.cluster.local]', 'name: shadow').replace(
      'namespace: demo',
      'namespace: other',
    ),
  );
  t.like(mesh.service('other/web.demo.svc.cluster.local'), { canonical: true });
  mesh.apply(service(''));
  t.like(mesh.service('other/web.demo.svc.cluster.local'), { canonical: false });
  t.like(mesh.service(WEB), { canonical: true });
});

test('inline endpoints become workloads', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    entry(
      'hosts: [a.example], resolution: STATIC, endpoints: [{address: 192.0.2.10, ports: {tls: 9443}, weight: 3, locality: r/z/s, network: net-b, serviceAccount: ext}, {address: 192.0.2.11}]',
      'name: ext, labels: {app: outside, networking.istio.io/tunnel: http}',
    ),
  );
  const prefix = 'Kubernetes/networking.istio.io/ServiceEntry/demo/ext/';
  t.like(mesh.workload(`${prefix}192.0.2.10`), {
    addresses: ['192.0.2.10'],
    services: { 'demo/a.example': { 443: 9443, 80: 80 } },
    capacity: 3,
    locality: { region: 'r', zone: 'z', subzone: 's' },
    network: 'net-b',
    serviceAccount: 'ext',
    canonicalName: 'outside',
    tunnelProtocol: 'HBONE',
    nativeTunnel: true,
    status: 'HEALTHY',
  });
  t.like(mesh.workload(`${prefix}192.0.2.11`), {
    services: { 'demo/a.example': { 443: 8443, 80: 80 } },
    capacity: 1,
    tunnelProtocol: 'HBONE',
  });
});

test('an entry that serves no host has no workloads', (t) => {
  const mesh = new TestMesh();
  const static_ = 'hosts: [a.example], resolution: STATIC';
  const prefix = 'Kubernetes/networking.istio.io/ServiceEntry/demo';
  mesh.apply(entry(`${static_}, endpoints: [{address: 192.0.2.10}], exportTo: ["~"]`));
  t.is(mesh.workload(`${prefix}/ext/192.0.2.10`), undefined, 'exported to nobody');
  mesh.apply(entry(`${static_}, endpoints: [{address: 192.0.2.10}]`));
  t.not(mesh.workload(`${prefix}/ext/192.0.2.10`), undefined);
  mesh.apply(entry(`${static_}, endpoints: [{address: 192.0.2.11}]`, 'name: younger'));
  t.is(mesh.workload(`${prefix}/younger/192.0.2.11`), undefined, 'a duplicate');
  mesh.remove('ServiceEntry/demo/ext');
  t.not(mesh.workload(`${prefix}/younger/192.0.2.11`), undefined, 'the only one left');
});

test('hosts that DNS is to find become workloads by name', (t) => {
  const mesh = new TestMesh();
  mesh.apply(entry('hosts: [a.example], resolution: DNS'));
  t.like(mesh.workload('Kubernetes/networking.istio.io/ServiceEntry/demo/ext/a.example'), {
    hostname: 'a.example',
    addresses: [],
    services: { 'demo/a.example': { 443: 8443, 80: 80 } },
  });
  mesh.apply(entry('hosts: [a.example], resolution: DNS, endpoints: [{address: B.example}]'));
  t.is(mesh.workload('Kubernetes/networking.istio.io/ServiceEntry/demo/ext/a.example'), undefined);
  t.is(
    mesh.workload('Kubernetes/networking.istio.io/ServiceEntry/demo/ext/b.example')?.hostname,
    'b.example',
  );
});

test('a WorkloadEntry becomes a workload, found by services and entries', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    service('selector: {app: vm}').replace('{port: 80}', '{port: 80, name: http, targetPort: web}'),
  );
  mesh.apply(
    entry('hosts: [a.example], resolution: STATIC, workloadSelector: {labels: {app: vm}}'),
  );
  mesh.apply(
    'apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm-1, namespace: demo, annotations: {istio.io/autoRegistrationGroup: group}}\nspec: {address: 192.0.2.20, ports: {web: 8088, tls: 9443}, labels: {app: vm}, weight: 2, serviceAccount: vm}',
  );
  t.like(mesh.workload('Kubernetes/networking.istio.io/WorkloadEntry/demo/vm-1'), {
    addresses: ['192.0.2.20'],
    serviceAccount: 'vm',
    capacity: 2,
    workloadName: 'group',
    canonicalName: 'vm',
    status: 'HEALTHY',
    services: { [WEB]: { 80: 8088 }, 'demo/a.example': { 443: 9443, 80: 80 } },
  });
});

test('a WorkloadEntry has the port that a Service names as its target, else its own port of the same name', (t) => {
  const mesh = new TestMesh();
  const ports = [
    '{port: 80, name: http, targetPort: web}',
    '{port: 81, name: web, targetPort: 9000}',
    '{port: 82, name: tls, targetPort: constructor}',
  ];
  mesh.apply(service('selector: {app: vm}').replace('{port: 80}', ports.join(', ')));
  mesh.apply(
    'apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: vm-1, namespace: demo}\nspec: {address: 192.0.2.20, ports: {http: 1111, web: 2222}, labels: {app: vm}}',
  );
  t.deepEqual(mesh.workload('Kubernetes/networking.istio.io/WorkloadEntry/demo/vm-1')?.services, {
    [WEB]: { 80: 2222, 81: 2222 },
  });
});

test('an entry finds pods; their port of the same name comes first', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    entry('hosts: [a.example], resolution: STATIC, workloadSelector: {labels: {app: web}}'),
  );
  mesh.apply(
    podManifest('web-1', {
      metadata: 'labels: {app: web}',
      container: 'ports: [{name: http, containerPort: 8080}]',
    }),
  );
  t.deepEqual(mesh.pod('web-1')?.services, { 'demo/a.example': { 443: 8443, 80: 8080 } });
});
