/** spec: istiod-ambient.md §1.1, spec: istiod-ambient.md §1.2. */
import test from 'ava';
import { TestMesh, podManifest } from '../../../support/mesh-objects.ts';

function mapped(fields: Parameters<typeof podManifest>[1] = {}): ReturnType<TestMesh['pod']> {
  const mesh = new TestMesh();
  mesh.apply(podManifest('web-1', fields));
  return mesh.pod('web-1');
}

test('a running pod becomes a workload', (t) => {
  t.deepEqual(mapped({ spec: 'serviceAccountName: web' }), {
    uid: 'Kubernetes//Pod/demo/web-1',
    name: 'web-1',
    namespace: 'demo',
    addresses: ['10.201.0.5'],
    hostname: '',
    network: '',
    tunnelProtocol: 'NONE',
    trustDomain: 'cluster.local',
    serviceAccount: 'web',
    waypoint: null,
    networkGateway: null,
    node: 'node-1',
    canonicalName: 'web-1',
    canonicalRevision: 'latest',
    workloadType: 'pod',
    workloadName: 'web-1',
    nativeTunnel: false,
    applicationTunnel: null,
    services: {},
    authorizationPolicies: [],
    status: 'HEALTHY',
    clusterId: 'Kubernetes',
    locality: { region: '', zone: '', subzone: '' },
    networkMode: 'STANDARD',
    capacity: 1,
  });
});

for (const [what, status] of [
  ['that failed', 'phase: Failed, podIPs: [{ip: 10.201.0.5}]'],
  ['that succeeded', 'phase: Succeeded, podIPs: [{ip: 10.201.0.5}]'],
  ['without address', 'phase: Running'],
] as const) {
  test(`a pod ${what} is no workload`, (t) => {
    t.is(mapped({ status }), undefined);
  });
}

test('a pending pod with an address is an unhealthy workload', (t) => {
  t.is(mapped({ status: 'phase: Pending, podIPs: [{ip: 10.201.0.5}]' })?.status, 'UNHEALTHY');
});

test('addresses are canonical and stand once', (t) => {
  const status =
    "phase: Running, podIPs: [{ip: 'FD00::0:5'}, {ip: '::ffff:10.0.0.1'}, {ip: 10.0.0.1}]";
  t.deepEqual(mapped({ status })?.addresses, ['fd00::5', '10.0.0.1']);
});

test('the service account defaults', (t) => {
  t.is(mapped()?.serviceAccount, 'default');
});

test('a pod of the host network', (t) => {
  t.is(mapped({ spec: 'hostNetwork: true' })?.networkMode, 'HOST_NETWORK');
});

test('enrolment and the native tunnel decide the protocol', (t) => {
  const enrolled = mapped({ metadata: 'annotations: {ambient.istio.io/redirection: enabled}' });
  t.like(enrolled, { tunnelProtocol: 'HBONE', nativeTunnel: false });
  const native = mapped({ metadata: 'labels: {networking.istio.io/tunnel: http}' });
  t.like(native, { tunnelProtocol: 'HBONE', nativeTunnel: true });
  const other = mapped({ metadata: 'annotations: {ambient.istio.io/redirection: disabled}' });
  t.like(other, { tunnelProtocol: 'NONE', nativeTunnel: false });
});

const owner = (kind: string, name: string): string =>
  `generateName: x-, ownerReferences: [{apiVersion: v1, kind: ${kind}, name: ${name}, uid: u, controller: true}]`;

const owners: readonly (readonly [what: string, metadata: string, name: string])[] = [
  ['a Deployment', `${owner('ReplicaSet', 'web-5d4f')}, labels: {pod-template-hash: 5d4f}`, 'web'],
  [
    'a Rollout',
    `${owner('ReplicaSet', 'web-77aa')}, labels: {rollouts-pod-template-hash: 77aa}`,
    'web',
  ],
  ['a bare ReplicaSet', owner('ReplicaSet', 'web-5d4f'), 'web-5d4f'],
  [
    'a DeploymentConfig',
    `${owner('ReplicationController', 'web-3')}, labels: {deploymentconfig: web}`,
    'web',
  ],
  ['a bare ReplicationController', owner('ReplicationController', 'web-3'), 'web-3'],
  ['a CronJob', owner('Job', 'tidy-28391234'), 'tidy'],
  ['a Job', owner('Job', 'tidy-1'), 'tidy-1'],
  ['a StatefulSet', owner('StatefulSet', 'db'), 'db'],
  [
    'an owner of a pod with a name of its own',
    owner('StatefulSet', 'db').replace('generateName: x-, ', ''),
    'web-1',
  ],
  [
    'an owner that does not control',
    owner('StatefulSet', 'db').replace('controller: true', 'controller: false'),
    'web-1',
  ],
  [
    'a label',
    `${owner('StatefulSet', 'db')}, labels: {service.istio.io/workload-name: mine}`,
    'mine',
  ],
];
for (const [what, metadata, name] of owners) {
  test(`the workload name comes from ${what}`, (t) => {
    t.is(mapped({ metadata })?.workloadName, name);
  });
}

test('canonical names come from labels in order', (t) => {
  const labels = ['service.istio.io/canonical-name: a', 'app.kubernetes.io/name: b', 'app: c'];
  const name = (from: number): string | undefined =>
    mapped({ metadata: `labels: {${labels.slice(from).join(', ')}}` })?.canonicalName;
  t.deepEqual([name(0), name(1), name(2), name(3)], ['a', 'b', 'c', 'web-1']);
  const revisions = [
    'service.istio.io/canonical-revision: a',
    'app.kubernetes.io/version: b',
    'version: c',
  ];
  const revision = (from: number): string | undefined =>
    mapped({ metadata: `labels: {${revisions.slice(from).join(', ')}}` })?.canonicalRevision;
  t.deepEqual([revision(0), revision(1), revision(2), revision(3)], ['a', 'b', 'c', 'latest']);
});

const SERVICE = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec:
  selector: {app: web}
  ports:
  - {name: http, port: 80, targetPort: 8080}
  - {name: same, port: 81}
  - {name: named, port: 82, targetPort: metrics}
  - {name: missing, port: 83, targetPort: nowhere}
  - {name: sidecar, port: 84, targetPort: side}
  - {name: once, port: 85, targetPort: init}
  - {name: datagram, port: 86, targetPort: udp}
`;

test('services map their ports to those of the pod', (t) => {
  const mesh = new TestMesh();
  mesh.apply(SERVICE);
  mesh.apply(
    podManifest('web-1', {
      metadata: 'labels: {app: web, tier: front}',
      container:
        'ports: [{name: metrics, containerPort: 9090}, {name: udp, containerPort: 53, protocol: UDP}]',
      spec: 'initContainers: [{name: i, ports: [{name: init, containerPort: 1}]}, {name: s, restartPolicy: Always, ports: [{name: side, containerPort: 7000}]}]',
    }),
  );
  t.deepEqual(mesh.pod('web-1')?.services, {
    'demo/web.demo.svc.cluster.local': { 80: 8080, 81: 81, 82: 9090, 84: 7000 },
  });
});

test('only services of the namespace that select, and select something', (t) => {
  const mesh = new TestMesh();
  mesh.apply(SERVICE.replace('namespace: demo', 'namespace: other'));
  mesh.apply(SERVICE.replace('app: web', 'app: api').replace('name: web', 'name: api'));
  mesh.apply(
    SERVICE.replace('selector: {app: web}', 'selector: {}').replace('name: web', 'name: none'),
  );
  mesh.apply(podManifest('web-1', { metadata: 'labels: {app: web}' }));
  t.deepEqual(mesh.pod('web-1')?.services, {});
});

test('a change touches only what depends on it', (t) => {
  const mesh = new TestMesh();
  mesh.apply(SERVICE);
  mesh.apply(podManifest('web-1', { metadata: 'labels: {app: web}' }));
  mesh.apply(podManifest('api-1', { metadata: 'labels: {app: api}' }));
  mesh.changed();
  mesh.apply(podManifest('web-1', { metadata: 'labels: {app: web, version: v2}' }));
  t.deepEqual(mesh.changed(), ['Kubernetes//Pod/demo/web-1']);
  mesh.apply(SERVICE.replace('app: web', 'app: api'));
  t.deepEqual(mesh.changed(), ['Kubernetes//Pod/demo/api-1', 'Kubernetes//Pod/demo/web-1']);
  mesh.apply(
    SERVICE.replace('app: web', 'app: api').replace('targetPort: 8080', 'targetPort: 8081'),
  );
  t.deepEqual(mesh.changed(), ['Kubernetes//Pod/demo/api-1', 'demo/web.demo.svc.cluster.local']);
  mesh.remove('Pod/demo/api-1');
  t.deepEqual(mesh.changed(), ['Kubernetes//Pod/demo/api-1']);
  t.deepEqual(mesh.changed(), []);
});

test('the network of the mesh is a label of the root namespace', (t) => {
  const mesh = new TestMesh();
  mesh.apply(podManifest('web-1'));
  mesh.apply(
    'apiVersion: v1\nkind: Namespace\nmetadata: {name: istio-system, labels: {topology.istio.io/network: net-a}}',
  );
  t.is(mesh.pod('web-1')?.network, 'net-a');
});
