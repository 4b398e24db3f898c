import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import test from 'ava';
import type { KubernetesClient } from '../../../../lib/kubernetes/client.ts';
import { choosePods, printLogs } from '../../../../services/cli/cluster/cluster-logs.ts';
import { clusterStatusLines } from '../../../../services/cli/cluster/cluster-status.ts';
import { nodesOf, podsOfRole } from '../../../../services/cli/cluster/weft-pods.ts';
import type { WeftPod } from '../../../../services/cli/cluster/weft-pods.ts';

const pod = (name: string, fields: Partial<WeftPod>): WeftPod => ({
  name,
  role: 'node-proxy',
  node: 'n1',
  version: '0.1.0',
  perNode: true,
  running: true,
  ready: true,
  leaving: false,
  waits: null,
  restarts: 0,
  createdAt: '2026-11-23T10:00:00Z',
  containers: ['one'],
  ...fields,
});

const PODS = [
  pod('old', { leaving: true }),
  pod('starting', { ready: false, createdAt: '2026-11-23T12:00:00Z' }),
  pod('serving', { createdAt: '2026-11-23T11:00:00Z' }),
  pod('gone', { running: false }),
  pod('compact', { role: 'node-agent', node: 'n2', containers: ['redis', 'node'] }),
  pod('ca', { role: 'ca', node: 'n3', perNode: false }),
];

const names = (pods: readonly WeftPod[]): string[] => pods.map(({ name }) => name);

test('the pod that answers for a role comes first, and those that end last', (t) => {
  t.deepEqual(names(podsOfRole(PODS, 'node-proxy', 'n1')), ['serving', 'starting', 'old']);
  t.deepEqual(names(podsOfRole(PODS, 'ca', null)), ['ca']);
  t.deepEqual(names(podsOfRole(PODS, 'ca', 'n1')), []);
});

test('one process may host all roles of a node', (t) => {
  for (const role of ['node-proxy', 'node-agent', 'cert-fetcher'] as const) {
    t.deepEqual(names(podsOfRole(PODS, role, 'n2')), ['compact'], role);
  }
  t.deepEqual(nodesOf(PODS), ['n1', 'n2']);
});

test('logs are chosen by role, and by node and role', (t) => {
  t.is(choosePods(PODS, undefined).length, PODS.length);
  t.deepEqual(names(choosePods(PODS, 'ca')), ['ca']);
  t.deepEqual(names(choosePods(PODS, 'n2/node-proxy')), ['compact']);
  t.deepEqual(names(choosePods(PODS, 'node-proxy.n2')), ['compact']);
  t.throws(() => choosePods(PODS, 'n3/node-proxy'), { message: /there are ca, node-agent/ });
});

test('a log that is followed is never cut for its silence', async (t) => {
  const asked: (number | undefined)[] = [];
  const stream: KubernetesClient['stream'] = ({ silenceMs }) => {
    asked.push(silenceMs);
    return Promise.resolve(Readable.from([]) as IncomingMessage);
  };
  const mesh = { weftPods: PODS, access: { client: { stream }, namespace: 'istio-system' } };
  await printLogs(mesh, 'ca', true);
  await printLogs(mesh, 'ca', false);
  t.deepEqual(asked, [0, undefined]);
});

test('the status of a cluster names what is not right', (t) => {
  const lines = clusterStatusLines({
    namespace: 'istio-system',
    ready: false,
    versions: ['0.1.0', '0.2.0'],
    nodes: [
      {
        name: 'n1',
        enrolled: 2,
        notEnrolled: 1,
        driftRepairs: 3,
        firstExpiry: { identity: 'spiffe://td/ns/a/sa/b', node: 'n1', hours: 2.5 },
        problems: [],
      },
      {
        name: 'n2',
        enrolled: null,
        notEnrolled: null,
        driftRepairs: null,
        firstExpiry: null,
        problems: ['the agent does not answer'],
      },
    ],
    roles: [
      {
        role: 'ca',
        node: null,
        pod: 'weft-ca-1',
        version: '0.1.0',
        state: 'starting',
        pending: ['pods'],
        restarts: 1,
        ageSeconds: 61,
      },
    ],
  });
  const text = lines.join('\n');
  for (const expected of [
    /^release in istio-system: not ready, version 0\.1\.0, 0\.2\.0/,
    /n1 +2 +1 +3 +2\.5 h/,
    /n2 +- +- +- +-/,
    /ca +- +weft-ca-1 +0\.1\.0 +starting \(pods\) +1 +1m01s/,
    /several versions run: 0\.1\.0, 0\.2\.0/,
    /expires in 2\.5 h: spiffe:\/\/td\/ns\/a\/sa\/b on n1/,
    /n2: the agent does not answer/,
  ]) {
    t.regex(text, expected);
  }
});
