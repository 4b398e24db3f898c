import test from 'ava';
import { KINDS, kindResources } from '../../../../services/control-plane/manifests/kinds.ts';
import { reduce } from '../../../../services/control-plane/manifests/reduce.ts';
import { validateObject } from '../../../../services/control-plane/manifests/validate.ts';

test('a pod is reduced to the fields in use', (t) => {
  const pod = reduce('Pod', {
    metadata: {
      name: 'web-1',
      namespace: 'demo',
      uid: 'u1',
      resourceVersion: '7',
      labels: { app: 'web', wrong: 7 },
      annotations: {
        'kubectl.kubernetes.io/last-applied-configuration': '{}',
        'ambient.istio.io/redirection': 'enabled',
      },
      ownerReferences: [
        { apiVersion: 'v1', kind: 'Other', name: 'o', uid: 'x' },
        { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', uid: 'y', controller: true },
      ],
      managedFields: [{ manager: 'kubelet' }],
    },
    spec: {
      nodeName: 'node-1',
      volumes: [{ name: 'v' }],
      containers: [
        { name: 'app', image: 'x', ports: [{ name: 'http', containerPort: 80, protocol: 'TCP' }] },
        { name: 'other', ports: [{ containerPort: 81 }] },
      ],
      initContainers: [{ name: 'init', ports: [{ name: 'once', containerPort: 82 }] }],
    },
    status: {
      phase: 'Running',
      podIPs: [{ ip: '10.0.0.1' }],
      conditions: [
        { type: 'Initialized', status: 'True', lastTransitionTime: 'x' },
        { type: 'Ready', status: 'True', lastTransitionTime: 'x' },
      ],
      containerStatuses: [{}],
    },
  });
  t.deepEqual(pod, {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: 'web-1',
      namespace: 'demo',
      uid: 'u1',
      labels: { app: 'web' },
      annotations: { 'ambient.istio.io/redirection': 'enabled' },
      ownerReferences: [
        { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'web', controller: true },
      ],
    },
    spec: {
      nodeName: 'node-1',
      containers: [{ name: 'app', ports: [{ name: 'http', containerPort: 80, protocol: 'TCP' }] }],
    },
    status: {
      phase: 'Running',
      podIPs: [{ ip: '10.0.0.1' }],
      conditions: [{ type: 'Ready', status: 'True' }],
    },
  } as never);
});

test('every kind has a resource, and an object without fields is reduced to one that can be read', (t) => {
  for (const kind of KINDS) {
    t.regex(kindResources[kind].plural, /^[a-z]+$/);
    const object = reduce(kind, { metadata: { name: 'x' } });
    t.is(object?.kind, kind);
  }
  t.is(reduce('Pod', { metadata: {} }), null);
  t.is(reduce('Pod', 'text'), null);
});

test('a policy keeps conditions that nobody knows', (t) => {
  const spec = { action: 'ALLOW', rules: [{ from: [{ source: { newCondition: ['x'] } }] }] };
  const policy = reduce('AuthorizationPolicy', { metadata: { name: 'p', namespace: 'a' }, spec });
  t.deepEqual(policy?.spec as unknown, spec);
  const { object, problems } = validateObject('AuthorizationPolicy', policy);
  t.is(object, null);
  t.true(
    problems.some(
      ({ path, reason }) =>
        path === 'spec.rules[0].from[0].source.newCondition' && reason === 'unknown field',
    ),
  );
});

test('values of new kinds are checked', (t) => {
  const problemsOf = (kind: 'Gateway' | 'EndpointSlice', spec: object) =>
    validateObject(kind, {
      apiVersion: kind === 'Gateway' ? 'gateway.networking.k8s.io/v1' : 'discovery.k8s.io/v1',
      kind,
      metadata: { name: 'x', namespace: 'a' },
      ...spec,
    }).problems;
  const listener = { name: 'mesh', port: 15_008, protocol: 'HBONE' };
  const gateway = { gatewayClassName: 'istio-waypoint', listeners: [listener] };
  t.deepEqual(problemsOf('Gateway', { spec: gateway }), []);
  const from = { ...listener, allowedRoutes: { namespaces: { from: 'Selector' } } };
  t.deepEqual(problemsOf('Gateway', { spec: { ...gateway, listeners: [from] } }), [
    {
      path: 'spec.listeners[0].allowedRoutes.namespaces.selector',
      reason: 'is required for Selector',
    },
  ]);
  t.deepEqual(problemsOf('EndpointSlice', { addressType: 'IPv5' }), [
    { path: 'addressType', reason: 'must be one of "IPv4", "IPv6", "FQDN"' },
  ]);
});
