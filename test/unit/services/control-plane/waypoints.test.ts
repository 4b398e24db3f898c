/** Waypoints: spec: istiod-ambient.md §1.6. The policies of waypoints: spec: istiod-ambient.md §2.4. */
import test from 'ava';
import type { GatewayAddress } from '../../../../lib/state/model.ts';
import { TestMesh, namespace, podManifest } from '../../../support/mesh-objects.ts';

const GATEWAY = 'gateway.networking.k8s.io/v1';
const WEB = 'demo/web.demo.svc.cluster.local';

interface GatewayFields {
  readonly ns?: string;
  readonly labels?: string;
  readonly annotations?: string;
  readonly routes?: string;
  readonly address?: string;
}

function gateway(name: string, fields: GatewayFields = {}): string {
  const address = fields.address ?? `{type: Hostname, value: ${name}.example}`;
  return `apiVersion: ${GATEWAY}
kind: Gateway
metadata: {name: ${name}, namespace: ${fields.ns ?? 'demo'}, labels: {${fields.labels ?? ''}}, annotations: {${fields.annotations ?? ''}}}
spec:
  gatewayClassName: istio-waypoint
  addresses: [${address}]
  listeners: [{name: mesh, port: 15008, protocol: HBONE, ${fields.routes ?? ''}}]
`;
}

function service(labels = '', annotations = ''): string {
  return `apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo, labels: {${labels}}, annotations: {${annotations}}}
spec: {ports: [{port: 80}], selector: {app: web}}
`;
}

function hostname(name: string, ns = 'demo'): GatewayAddress {
  const destination = { kind: 'hostname', namespace: ns, hostname: `${name}.example` } as const;
  return { destination, hboneMtlsPort: 15_008 };
}

function meshOf(...manifests: readonly string[]): TestMesh {
  const mesh = new TestMesh();
  mesh.apply(manifests.join('---\n'));
  return mesh;
}

test('a Service is bound by its own label, else by its namespace’s', (t) => {
  const mesh = meshOf(gateway('one'), gateway('two'), service('istio.io/use-waypoint: one'));
  t.deepEqual(mesh.service(WEB)?.waypoint, hostname('one'));
  t.deepEqual(mesh.conditions('Service/demo/web'), [
    'istio.io/WaypointBound True WaypointAccepted',
  ]);
  mesh.apply(
    namespace('demo').replace('{name: demo}', '{name: demo, labels: {istio.io/use-waypoint: two}}'),
  );
  t.deepEqual(mesh.service(WEB)?.waypoint, hostname('one'));
  mesh.apply(service());
  t.deepEqual(mesh.service(WEB)?.waypoint, hostname('two'));
  mesh.apply(service('istio.io/use-waypoint: none'));
  t.is(mesh.service(WEB)?.waypoint, null);
  t.deepEqual(mesh.conditions('Service/demo/web'), []);
});

test('a waypoint that is missing or has no address is not replaced by the namespace’s', (t) => {
  const mesh = meshOf(gateway('two'), service('istio.io/use-waypoint: one'));
  mesh.apply(
    namespace('demo').replace('{name: demo}', '{name: demo, labels: {istio.io/use-waypoint: two}}'),
  );
  t.is(mesh.service(WEB)?.waypoint, null);
  t.deepEqual(mesh.conditions('Service/demo/web'), [
    'istio.io/WaypointBound False WaypointIsNotReady',
  ]);
  mesh.apply(gateway('one', { address: '' }));
  t.is(mesh.service(WEB)?.waypoint, null);
  mesh.apply(gateway('one', { address: '{value: 10.0.0.9}' }));
  t.deepEqual(mesh.service(WEB)?.waypoint, {
    destination: { kind: 'address', network: '', ip: '10.0.0.9' },
    hboneMtlsPort: 15_008,
  });
});

for (const [routes, labels, allowed] of [
  ['', '', false],
  ['allowedRoutes: {namespaces: {from: All}}', '', true],
  ['allowedRoutes: {namespaces: {from: Same}}', '', false],
  ['allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}', '', false],
  [
    'allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: a}}}}',
    'team: a',
    true,
  ],
  [
    'allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: team, operator: In, values: [a, b]}]}}}',
    'team: b',
    true,
  ],
] as const) {
  test(`another namespace’s waypoint with "${routes}" for labels "${labels}"`, (t) => {
    const mesh = meshOf(
      gateway('one', { ns: 'other', routes }),
      namespace('demo').replace('{name: demo}', `{name: demo, labels: {${labels}}}`),
      service('istio.io/use-waypoint: one, istio.io/use-waypoint-namespace: other'),
    );
    t.deepEqual(mesh.service(WEB)?.waypoint, allowed ? hostname('one', 'other') : null);
    const condition = allowed ? 'True WaypointAccepted' : 'False AttachmentDenied';
    t.deepEqual(mesh.conditions('Service/demo/web'), [`istio.io/WaypointBound ${condition}`]);
  });
}

test('the traffic of a waypoint: its own label, its class’s, else services', (t) => {
  const mesh = meshOf(
    gateway('one'),
    service('istio.io/use-waypoint: one'),
    podManifest('a', { metadata: 'labels: {istio.io/use-waypoint: one}' }),
    podManifest('b'),
  );
  mesh.apply(
    namespace('demo').replace('{name: demo}', '{name: demo, labels: {istio.io/use-waypoint: one}}'),
  );
  t.deepEqual(mesh.service(WEB)?.waypoint, hostname('one'));
  t.is(mesh.pod('a')?.waypoint, null);
  mesh.apply(`apiVersion: ${GATEWAY}
kind: GatewayClass
metadata: {name: istio-waypoint, labels: {istio.io/waypoint-for: workload}}
spec: {controllerName: istio.io/mesh-controller}
`);
  t.is(mesh.service(WEB)?.waypoint, null);
  t.deepEqual(mesh.conditions('Service/demo/web'), [
    'istio.io/WaypointBound False UnsupportedTrafficType',
  ]);
  t.deepEqual(mesh.pod('a')?.waypoint, hostname('one'));
  t.deepEqual(mesh.pod('b')?.waypoint, hostname('one'));
  mesh.apply(gateway('one', { labels: 'istio.io/waypoint-for: all' }));
  t.deepEqual(mesh.service(WEB)?.waypoint, hostname('one'));
  t.deepEqual(mesh.pod('a')?.waypoint, hostname('one'));
  mesh.apply(gateway('one', { labels: 'istio.io/waypoint-for: none' }));
  t.is(mesh.service(WEB)?.waypoint, null);
  t.is(mesh.pod('a')?.waypoint, null);
});

test('Services of gateways and pods of waypoints have no waypoint', (t) => {
  const mesh = meshOf(
    gateway('one', {
      labels: 'istio.io/waypoint-for: all',
      annotations: 'ambient.istio.io/waypoint-inbound-binding: PROXY/15088',
    }),
    service('istio.io/use-waypoint: one, gateway.istio.io/managed: istio.io-mesh-controller'),
    podManifest('w', {
      metadata: 'labels: {gateway.networking.k8s.io/gateway-name: one, istio.io/use-waypoint: one}',
    }),
    podManifest('a', { metadata: 'labels: {istio.io/use-waypoint: one}' }),
  );
  t.is(mesh.service(WEB)?.waypoint, null);
  t.is(mesh.pod('w')?.waypoint, null);
  t.deepEqual(mesh.pod('w')?.applicationTunnel, { protocol: 'PROXY', port: 15_088 });
  t.deepEqual(mesh.pod('a')?.waypoint, hostname('one'));
  t.is(mesh.pod('a')?.applicationTunnel, null);
});

test('a canary shares the traffic; a bad one leaves the primary alone', (t) => {
  const use = 'istio.io/use-waypoint: one, istio.io/use-waypoint-canary: two';
  const weight = (text: string): string => `istio.io/use-waypoint-canary-weight: '${text}'`;
  const mesh = meshOf(gateway('one'), gateway('two'), service(use, weight('30')));
  t.deepEqual(mesh.service(WEB)?.weightedWaypoints, [
    { destination: hostname('one'), weight: 70 },
    { destination: hostname('two'), weight: 30 },
  ]);
  for (const bad of ['101', '-1', 'x', '1.5', '']) {
    mesh.apply(service(use, weight(bad)));
    t.deepEqual(mesh.service(WEB)?.weightedWaypoints, []);
    t.deepEqual(mesh.service(WEB)?.waypoint, hostname('one'));
    t.regex(mesh.map.status('Service/demo/web')?.conditions[0]?.message ?? '', /weight/);
  }
  mesh.apply(service('istio.io/use-waypoint: one, istio.io/use-waypoint-canary: one'));
  t.deepEqual(mesh.service(WEB)?.weightedWaypoints, []);
  t.regex(mesh.map.status('Service/demo/web')?.conditions[0]?.message ?? '', /is the primary/);
  mesh.apply(service(use));
  t.deepEqual(
    mesh.service(WEB)?.weightedWaypoints.map(({ weight: w }) => w),
    [100, 0],
  );
});

test('the namespace’s canary counts only for a primary of the namespace', (t) => {
  const mesh = meshOf(gateway('one'), gateway('two'), service());
  const labels = 'istio.io/use-waypoint: one, istio.io/use-waypoint-canary: two';
  const annotations = "istio.io/use-waypoint-canary-weight: '50'";
  mesh.apply(
    namespace('demo').replace(
      '{name: demo}',
      `{name: demo, labels: {${labels}}, annotations: {${annotations}}}`,
    ),
  );
  t.deepEqual(
    mesh.service(WEB)?.weightedWaypoints.map(({ weight }) => weight),
    [50, 50],
  );
  mesh.apply(service('istio.io/use-waypoint: one'));
  t.deepEqual(mesh.service(WEB)?.weightedWaypoints, []);
});

test('a WorkloadEntry, a ServiceEntry and its endpoints are bound', (t) => {
  const use = 'istio.io/use-waypoint: one';
  const mesh = meshOf(
    gateway('one', { labels: 'istio.io/waypoint-for: all' }),
    `apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: vm, namespace: demo, labels: {${use}}}
spec: {address: 10.0.0.7}
`,
    `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ext, namespace: demo, labels: {${use}}}
spec:
  hosts: [ext.example]
  resolution: STATIC
  ports: [{number: 80, name: http}]
  endpoints: [{address: 10.0.0.8, labels: {${use}}}, {address: 10.0.0.9}]
`,
  );
  const uid = 'Kubernetes/networking.istio.io';
  t.deepEqual(mesh.workload(`${uid}/WorkloadEntry/demo/vm`)?.waypoint, hostname('one'));
  t.deepEqual(mesh.conditions('WorkloadEntry/demo/vm'), [
    'istio.io/WaypointBound True WaypointAccepted',
  ]);
  t.deepEqual(mesh.service('demo/ext.example')?.waypoint, hostname('one'));
  t.deepEqual(mesh.workload(`${uid}/ServiceEntry/demo/ext/10.0.0.8`)?.waypoint, hostname('one'));
  t.is(mesh.workload(`${uid}/ServiceEntry/demo/ext/10.0.0.9`)?.waypoint, null);
});

test('an entry that only its namespace sees cannot use another namespace’s waypoint', (t) => {
  const mesh = meshOf(
    gateway('one', { ns: 'other', routes: 'allowedRoutes: {namespaces: {from: All}}' }),
    `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: ext, namespace: demo, labels: {istio.io/use-waypoint: one, istio.io/use-waypoint-namespace: other}}
spec: {hosts: ['*.example'], resolution: DYNAMIC_DNS, ports: [{number: 80, name: http}], exportTo: ['.']}
`,
  );
  t.is(mesh.service('demo/*.example')?.waypoint, null);
  t.deepEqual(mesh.conditions('ServiceEntry/demo/ext'), [
    'istio.io/WaypointBound False CrossNamespaceWaypointForbidden',
    'istio.io/WaypointMissing True NoWaypointForWildcardService',
  ]);
});

test('the label for ingress traffic is told in the status', (t) => {
  const mesh = meshOf(
    gateway('one'),
    service("istio.io/use-waypoint: one, istio.io/ingress-use-waypoint: 'true'"),
  );
  mesh.refresh();
  const message = mesh.map.status('Service/demo/web')?.conditions[0]?.message ?? '';
  t.regex(message, /ingress traffic goes through the waypoint/);
  const with_ = mesh.map.get('type.googleapis.com/istio.workload.Address', WEB)?.version;
  mesh.apply(service('istio.io/use-waypoint: one'));
  mesh.refresh();
  t.not(mesh.map.get('type.googleapis.com/istio.workload.Address', WEB)?.version, with_);
});

test('with the option, workloads list a policy that allows only their waypoints', (t) => {
  const mesh = new TestMesh({ allowFromWaypoint: true });
  mesh.apply(
    [
      gateway('one'),
      service('istio.io/use-waypoint: one'),
      podManifest('a', { metadata: 'labels: {app: web}' }),
      podManifest('b'),
    ].join('---\n'),
  );
  const key = 'demo/istio_allow_waypoint_demo_one';
  // Without pods the waypoint has no identity to allow.
  t.deepEqual(mesh.pod('a')?.authorizationPolicies, []);
  t.deepEqual(mesh.policies(), []);
  mesh.apply(
    podManifest('w', {
      metadata: 'labels: {gateway.networking.k8s.io/gateway-name: one}',
      spec: 'serviceAccountName: waypoint',
    }),
  );
  t.deepEqual(mesh.pod('a')?.authorizationPolicies, [key]);
  t.deepEqual(mesh.pod('b')?.authorizationPolicies, []);
  t.deepEqual(mesh.policy(key)?.rules[0]?.clauses[0]?.matches[0]?.principals, [
    { kind: 'exact', value: 'cluster.local/ns/demo/sa/waypoint' },
  ]);
  mesh.remove('Pod/demo/w');
  t.deepEqual(mesh.policies(), []);
  t.deepEqual(mesh.pod('a')?.authorizationPolicies, []);
});

test('each target of a policy is looked up', (t) => {
  const mesh = meshOf(gateway('one'), service('istio.io/use-waypoint: one'));
  const policy = (targets: string): string => `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: p, namespace: demo}
spec: {targetRefs: [${targets}], rules: [{}]}
`;
  const web = "{kind: Service, group: '', name: web}";
  const missing = "{kind: Service, group: '', name: missing}";
  const cases: readonly (readonly [targets: string, condition: string])[] = [
    [web, 'True Accepted'],
    [missing, 'False TargetNotFound'],
    ['{kind: Gateway, group: gateway.networking.k8s.io, name: one}', 'True Accepted'],
    ['{kind: Gateway, group: gateway.networking.k8s.io, name: two}', 'False TargetNotFound'],
    [
      '{kind: GatewayClass, group: gateway.networking.k8s.io, name: istio-waypoint}',
      'False Invalid',
    ],
    [`${web}, ${missing}`, 'True PartiallyInvalid'],
    [`${missing}, {kind: ServiceEntry, name: x}`, 'False Invalid'],
  ];
  for (const [targets, condition] of cases) {
    mesh.apply(policy(targets));
    t.deepEqual(mesh.conditions('AuthorizationPolicy/demo/p'), [`WaypointAccepted ${condition}`]);
    t.deepEqual(mesh.policies(), []);
  }
  mesh.apply(policy(web));
  mesh.remove('Gateway/demo/one');
  t.deepEqual(mesh.conditions('AuthorizationPolicy/demo/p'), [
    'WaypointAccepted False AncestorNotBound',
  ]);
});
