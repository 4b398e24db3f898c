/** Localities, EndpointSlices and network gateways: spec: istiod-ambient.md §1.1, spec: istiod-ambient.md §1.2, spec: istiod-ambient.md §1.3. */
import test from 'ava';
import { TestMesh, namespace, podManifest } from '../../../support/mesh-objects.ts';

const BARE = 'demo/bare.demo.svc.cluster.local';

const node = (labels: string): string =>
  `apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {${labels}}}\n`;

function service(name: string, spec: string): string {
  return `apiVersion: v1\nkind: Service\nmetadata: {name: ${name}, namespace: demo}\nspec: {${spec}}\n`;
}

function slice(name: string, of: string, endpoints: string): string {
  return `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ${name}, namespace: demo, labels: {kubernetes.io/service-name: ${of}}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}, {name: dns, port: 53, protocol: UDP}]
endpoints: [${endpoints}]
`;
}

test('a pod has the locality of its node', (t) => {
  const mesh = new TestMesh();
  mesh.apply(podManifest('a'));
  t.deepEqual(mesh.pod('a')?.locality, { region: '', zone: '', subzone: '' });
  mesh.apply(
    node(
      'topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z, topology.istio.io/subzone: s',
    ),
  );
  t.deepEqual(mesh.pod('a')?.locality, { region: 'r', zone: 'z', subzone: 's' });
  mesh.apply(node('other: label'));
  t.deepEqual(mesh.pod('a')?.locality, { region: '', zone: '', subzone: '' });
});

test('a label of a node that nobody reads changes no pod', (t) => {
  const mesh = new TestMesh();
  mesh.apply([node('topology.kubernetes.io/zone: z'), podManifest('a')].join('---\n'));
  mesh.refresh();
  const before = mesh.map.computed;
  mesh.apply(node('topology.kubernetes.io/zone: z, new: label'));
  t.deepEqual(mesh.changed(), []);
  t.is(mesh.map.computed - before, 1);
});

test('podIP counts when podIPs is missing', (t) => {
  const mesh = new TestMesh();
  mesh.apply(podManifest('a', { status: 'phase: Running, podIP: 10.1.1.1' }));
  t.deepEqual(mesh.pod('a')?.addresses, ['10.1.1.1']);
  mesh.apply(
    podManifest('b', { status: 'phase: Running, podIP: 10.1.1.1, podIPs: [{ip: 10.1.1.2}]' }),
  );
  t.deepEqual(mesh.pod('b')?.addresses, ['10.1.1.2']);
});

test('endpoints that are no pods become workloads', (t) => {
  const mesh = new TestMesh();
  const uid = (ip: string): string => `Kubernetes/discovery.k8s.io/EndpointSlice/demo/bare-1/${ip}`;
  mesh.apply(
    slice(
      'bare-1',
      'bare',
      '{addresses: [10.9.0.1]}, {addresses: [10.9.0.2], conditions: {ready: false}}, {addresses: [10.9.0.1]}, {addresses: [x]}, {addresses: [10.9.0.3], targetRef: {kind: Pod, name: a, uid: u}}',
    ),
  );
  t.is(mesh.workload(uid('10.9.0.1')), undefined);
  mesh.apply(
    service('bare', 'ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]'),
  );
  const found = mesh.workload(uid('10.9.0.1'));
  t.like(found, {
    name: 'bare-1',
    namespace: 'demo',
    addresses: ['10.9.0.1'],
    networkMode: 'HOST_NETWORK',
    status: 'HEALTHY',
    waypoint: null,
    authorizationPolicies: [],
    services: { [BARE]: { 80: 8080 } },
  });
  t.is(mesh.workload(uid('10.9.0.2'))?.status, 'UNHEALTHY');
  t.is(mesh.workload(uid('10.9.0.3')), undefined);
  t.is(mesh.workload(uid('x')), undefined);
  mesh.remove('Service/demo/bare');
  t.is(mesh.workload(uid('10.9.0.1')), undefined);
});

test('a slice of host names, and one without a Service, is ignored', (t) => {
  const mesh = new TestMesh();
  mesh.apply(service('bare', 'ports: [{name: http, port: 80}]'));
  mesh.apply(
    slice('bare-1', 'bare', '{addresses: [x.example]}').replace('IPv4', 'FQDN') +
      '---\n' +
      slice('other', 'missing', '{addresses: [10.9.0.1]}'),
  );
  t.deepEqual(
    [...mesh.map.of('type.googleapis.com/istio.workload.Address').keys()].filter((name) =>
      name.includes('EndpointSlice'),
    ),
    [],
  );
});

test('the slice of a Service without a selector brings the pods that it names by name and uid', (t) => {
  const mesh = new TestMesh();
  mesh.apply(
    [service('bare', 'ports: [{name: http, port: 80, targetPort: 8080}]'), podManifest('a')].join(
      '---\n',
    ),
  );
  const uid = mesh.state.object('Pod', 'demo', 'a')?.metadata.uid ?? '';
  const ref = (id: string): string =>
    slice('bare-1', 'bare', `{addresses: [10.1.1.1], targetRef: {kind: Pod, name: a, uid: ${id}}}`);
  mesh.apply(ref('another'));
  t.deepEqual(mesh.pod('a')?.services, {});
  mesh.apply(ref(uid));
  t.deepEqual(mesh.pod('a')?.services, { [BARE]: { 80: 8080 } });
  mesh.apply(service('bare', 'ports: [{name: http, port: 80}], selector: {app: x}'));
  t.deepEqual(mesh.pod('a')?.services, {});
});

test('a gateway of another network is a workload, and what is in that network points to it', (t) => {
  const mesh = new TestMesh();
  const gateway = (
    name: string,
    value: string,
    type = 'IPAddress',
  ): string => `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: ${name}, namespace: istio-system, labels: {topology.istio.io/network: far}}
spec:
  gatewayClassName: istio-remote
  addresses: [{type: ${type}, value: ${value}}]
  listeners: [{name: cross, port: 15008, protocol: HBONE}]
`;
  mesh.apply(`apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: demo}
spec: {address: 10.0.0.7, network: far}
`);
  const vm = 'Kubernetes/networking.istio.io/WorkloadEntry/demo/vm';
  t.is(mesh.workload(vm)?.networkGateway, null);
  mesh.apply(gateway('east', '1.2.3.4'));
  t.deepEqual(mesh.workload(vm)?.networkGateway, {
    destination: { kind: 'address', network: 'far', ip: '1.2.3.4' },
    hboneMtlsPort: 15_008,
  });
  t.like(mesh.workload('NetworkGateway/far/1.2.3.4/15008'), {
    namespace: 'istio-system',
    serviceAccount: 'east-istio-remote',
    network: 'far',
    tunnelProtocol: 'HBONE',
    addresses: ['1.2.3.4'],
  });
  // The same address again is the same workload, which lives as long as one of the two.
  mesh.apply(gateway('west', '1.2.3.4'));
  mesh.remove('Gateway/istio-system/east');
  t.is(mesh.workload('NetworkGateway/far/1.2.3.4/15008')?.serviceAccount, 'west-istio-remote');
  mesh.apply(gateway('west', 'gw.example', 'Hostname'));
  t.deepEqual(mesh.workload(vm)?.networkGateway?.destination, {
    kind: 'hostname',
    namespace: 'istio-system',
    hostname: 'gw.example',
  });
  t.is(mesh.workload('NetworkGateway/far/gw.example/15008')?.hostname, 'gw.example');
});

test('the network of the system namespace is that of every pod', (t) => {
  const mesh = new TestMesh();
  mesh.apply(podManifest('a'));
  mesh.apply(
    namespace('istio-system').replace('}', ', labels: {topology.istio.io/network: near}}'),
  );
  t.is(mesh.pod('a')?.network, 'near');
});
