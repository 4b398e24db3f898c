import test from 'ava';
import { namespaceObject, podObject } from '../../../../services/local-mesh/objects.ts';
import {
  SlotPool,
  isEnrolled,
  pickNode,
  podPhase,
  placeOf,
  podRecord,
  samplePod,
  sandboxKey,
  wantsEnrolment,
} from '../../../../services/local-mesh/pod-plan.ts';
import type { ContainerState } from '../../../../services/local-mesh/pod-container.ts';
import type { PodSandbox } from '../../../../services/local-mesh/pod-namespaces.ts';
import {
  MAX_PODS_PER_NODE,
  planMesh,
  podAddresses,
} from '../../../../services/local-mesh/topology.ts';
import { present } from '../../../../lib/errors/assert.ts';

const node = present(planMesh('weft', 1).nodes[0], 'one node');
const sandbox: PodSandbox = {
  uid: 'u1',
  netns: 'weft-demo-web',
  node,
  addresses: podAddresses(node, 0),
  hostsFile: '/run/weft/hosts/demo',
  resolvConf: null,
  mountsFile: '/run/weft/mounts/u1',
  hostNetwork: false,
};
const AMBIENT = { 'istio.io/dataplane-mode': 'ambient' };
const NONE = { 'istio.io/dataplane-mode': 'none' };

const pod = (labels: object = {}, spec: object = {}, annotations: object = {}) =>
  podObject.parse({
    kind: 'Pod',
    metadata: { name: 'web', namespace: 'demo', uid: 'u1', labels, annotations },
    spec,
  });
const namespace = (labels: object) =>
  namespaceObject.parse({ kind: 'Namespace', metadata: { name: 'demo', labels } });

test('the namespace puts its pods into the mesh, a pod decides for itself', (t) => {
  t.true(wantsEnrolment(pod(), namespace(AMBIENT)));
  t.true(wantsEnrolment(pod(AMBIENT), undefined));
  t.false(wantsEnrolment(pod(NONE), namespace(AMBIENT)));
  t.false(wantsEnrolment(pod(), namespace({})));
  t.false(wantsEnrolment(pod(), undefined));
  t.false(wantsEnrolment(pod(AMBIENT, { hostNetwork: true }), namespace(AMBIENT)));
});

test('a pod counts as enrolled once it is marked so', (t) => {
  t.true(isEnrolled(pod({}, {}, { 'ambient.istio.io/redirection': 'enabled' })));
  t.false(isEnrolled(pod({}, {}, { 'ambient.istio.io/redirection': 'disabled' })));
  t.false(isEnrolled(pod()));
});

test('the record tells the node agent everything about the pod', (t) => {
  t.deepEqual(
    podRecord(pod({ app: 'web' }, { serviceAccountName: 'sa' }), undefined, placeOf(sandbox)),
    {
      uid: 'u1',
      namespace: 'demo',
      name: 'web',
      serviceAccount: 'sa',
      node: 'node-1',
      netns: '/run/netns/weft-demo-web',
      addresses: ['10.128.16.2', 'fd00:201:1::2'],
      labels: { app: 'web' },
      annotations: {},
      namespaceLabels: {},
      hostNetwork: false,
    },
  );
});

test('containers without a command are served, by the name of their ports', (t) => {
  const ports = [
    { name: 'http', containerPort: 80 },
    { name: 'tcp-echo', containerPort: 81 },
    { name: 'db', containerPort: 82 },
  ];
  const sample = samplePod(pod({}, { containers: [{ ports }, { command: ['true'] }] }), sandbox);
  t.deepEqual(
    sample?.ports.map(({ port, protocol }) => [port, protocol]),
    [
      [80, 'http'],
      [81, 'greeting'],
      [82, 'greeting'],
    ],
  );
  t.deepEqual(samplePod(pod({}, { containers: [{}] }), sandbox)?.ports, [
    { port: 8080, protocol: 'http' },
  ]);
  t.truthy(samplePod(pod(), sandbox), 'a pod without containers is served, too');
  t.is(samplePod(pod({}, { containers: [{ command: ['true'] }] }), sandbox), null);
});

test('labels may change in a running pod, what its processes are made of may not', (t) => {
  t.is(sandboxKey(pod({ a: '1' })), sandboxKey(pod({ a: '2' })));
  t.not(sandboxKey(pod()), sandboxKey(pod({}, { nodeName: 'node-2' })));
  t.not(sandboxKey(pod()), sandboxKey(pod({}, { containers: [{ command: ['true'] }] })));
});

const PHASES: readonly (readonly [readonly ContainerState[], boolean, string, boolean])[] = [
  [[], true, 'Running', true],
  [[], false, 'Pending', false],
  [['running'], true, 'Running', true],
  [['running', 'backoff'], true, 'Pending', false],
  [['succeeded'], true, 'Succeeded', false],
  [['succeeded', 'failed'], true, 'Failed', false],
  [['running', 'failed'], true, 'Pending', false],
];
for (const [states, serving, phase, ready] of PHASES) {
  test(`containers ${states.join(', ') || 'none'}${serving ? '' : ', not serving'}: ${phase}`, (t) => {
    t.deepEqual(podPhase(states, serving), { phase, ready });
  });
}

test('slots are handed out once, the one given back last is used last, and a full node says so', (t) => {
  const slots = new SlotPool();
  t.deepEqual([slots.take(), slots.take(), slots.take()], [0, 1, 2]);
  slots.give(1);
  t.is(slots.take(), 3);
  while (slots.size < MAX_PODS_PER_NODE) slots.take();
  t.is(slots.take(), null);
  t.is(slots.size, MAX_PODS_PER_NODE);
  slots.give(7);
  t.is(slots.take(), 7);
});

test('a pod that names no node goes to the one with the fewest', (t) => {
  t.is(
    pickNode(
      new Map([
        ['node-1', 3],
        ['node-2', 1],
        ['node-3', 1],
      ]),
    ),
    'node-2',
  );
});
