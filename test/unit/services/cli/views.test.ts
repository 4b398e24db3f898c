/** Tests the views of a mesh: the status, the live view, and the choice of the canary. */
import test from 'ava';
import { connectionRecord } from '../../../support/records.ts';
import { canaryLack, canaryRoute } from '../../../../services/local-mesh/canary.ts';
import { bytes, viewLines } from '../../../../services/cli/live-view.ts';
import { duration, statusLines } from '../../../../services/cli/status-lines.ts';
import type { MeshStatus, PodLine } from '../../../../services/local-mesh/supervisor-api.ts';
import type { ConnectionRecord } from '../../../../workers/listener/protocol/connections.ts';

const STATUS: MeshStatus = {
  waypointBypass: 'deny',
  mesh: 'weft',
  runDirectory: '/run/weft',
  supervisor: { pid: 7 },
  nodes: [
    { name: 'node-1', netns: 'weft-node-1', addresses: ['10.200.0.11', 'fd00:200::b'], pods: 2 },
  ],
  actors: [
    {
      name: 'ca',
      node: null,
      pid: 10,
      state: 'ready',
      pending: [],
      restarts: 0,
      uptimeSeconds: 61,
      generation: 2,
      retiring: false,
    },
    {
      name: 'node-proxy',
      node: 'node-1',
      pid: null,
      state: 'backoff',
      pending: ['restart'],
      restarts: 3,
      uptimeSeconds: 0,
      generation: 1,
      retiring: false,
    },
  ],
  redis: { pid: 9, state: 'ready', restarts: 0, socket: '/run/weft/redis/redis.sock' },
  started: true,
  ready: false,
  waiting: ['node-1/node-proxy'],
};

const pod = (name: string, node: string, changes: Partial<PodLine> = {}): PodLine => ({
  uid: name,
  namespace: 'demo',
  name,
  node,
  ip: '10.128.16.2',
  ips: ['10.128.16.2'],
  netns: `/run/netns/weft-demo-${name}`,
  serviceAccount: 'sa',
  phase: 'Running',
  ambient: true,
  ...changes,
});

const connection = (changes: Partial<ConnectionRecord> = {}): ConnectionRecord =>
  connectionRecord({
    protocol: 'HBONE',
    source: '10.128.16.2:4000',
    destination: '10.96.0.1:80',
    actualDestination: '10.128.32.2:8080',
    destinationService: 'api.demo.svc.cluster.local',
    sourceWorkload: 'client',
    bytesSent: 10,
    bytesReceived: 2_048,
    ...changes,
  });

test('the status names what is waited for, and shows every process', (t) => {
  t.deepEqual(statusLines(STATUS), [
    'mesh weft: waiting for node-1/node-proxy (supervisor 7, /run/weft)',
    'traffic that goes around a waypoint is refused (WEFT_WAYPOINT_BYPASS=deny)',
    '',
    'NODE    ADDRESS      PODS  NETNS',
    'node-1  10.200.0.11  2     weft-node-1',
    '',
    'ACTOR       NODE    PID  GEN  STATE              RESTARTS  UP',
    'ca          -       10   2    ready              0         1m01s',
    'node-proxy  node-1  -    1    backoff (restart)  3         0s',
    'redis       -       9    -    ready              0         -',
  ]);
  t.regex(statusLines({ ...STATUS, ready: true, waiting: [] })[0] ?? '', /^mesh weft: ready /);
  t.regex(statusLines({ ...STATUS, waiting: [] })[0] ?? '', /waiting for the start/);
});

test('times and sizes are short', (t) => {
  t.deepEqual([0, 59, 60, 3_599, 3_600, 90_000].map(duration), [
    '0s',
    '59s',
    '1m00s',
    '59m59s',
    '1h00m',
    '25h00m',
  ]);
  t.deepEqual([0, 1_023, 1_024, 1_536, 3 * 1_024 ** 3, 5_000 * 1_024 ** 3].map(bytes), [
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '3.0 GiB',
    '5000.0 GiB',
  ]);
});

test('the view shows pods with identity, and connections with their security', (t) => {
  const pods = [
    pod('client', 'node-1'),
    pod('late', 'node-1'),
    pod('out', 'node-1', { ambient: false }),
  ];
  const connections = [
    connection(),
    connection({ protocol: 'TCP', sourceWorkload: null, destinationService: null }),
  ];
  const lines = viewLines({ status: STATUS, pods, enrolled: new Set(['client']), connections });
  const end = lines.slice(lines.findIndex((line) => line.startsWith('POD')));
  t.deepEqual(end, [
    'POD          NODE    IP           IDENTITY',
    'demo/client  node-1  10.128.16.2  ns/demo/sa/sa',
    'demo/late    node-1  10.128.16.2  not enrolled yet',
    'demo/out     node-1  10.128.16.2  outside the mesh',
    '',
    'FROM              TO                          SIDE      SENT  RECEIVED  SECURITY',
    'client            api.demo.svc.cluster.local  outbound  10 B  2.0 KiB   mTLS',
    '10.128.16.2:4000  10.96.0.1:80                outbound  10 B  2.0 KiB   plaintext',
  ]);
});

test('long lists are cut, and an idle mesh says so', (t) => {
  const pods = Array.from({ length: 25 }, (_, index) => pod(`p${index}`, 'node-1'));
  const lines = viewLines({ status: STATUS, pods, enrolled: new Set(), connections: [] });
  t.is(lines.filter((line) => line.startsWith('demo/p')).length, 20);
  t.true(lines.includes('… and 5 more'));
  t.is(lines.at(-1), 'no open connections');
});

const uids = (pods: readonly PodLine[]): ReadonlySet<string> => new Set(pods.map(({ uid }) => uid));

test('the canary flies between nodes wherever there are pods on two', (t) => {
  const pods = [pod('a', 'node-1'), pod('b', 'node-1'), pod('c', 'node-2')];
  const route = canaryRoute(pods, uids(pods));
  t.not(route?.from.node, route?.to.node);
  t.is(canaryLack(route, 2), null);
});

test('only running, enrolled pods take part, and a canary that stayed on its node is told', (t) => {
  const pods = [
    pod('a', 'node-1'),
    pod('b', 'node-1'),
    pod('c', 'node-2', { phase: 'Pending' }),
    pod('d', 'node-2'),
  ];
  const route = canaryRoute(pods, new Set(['a', 'b', 'c']));
  t.deepEqual([route?.from.name, route?.to.name], ['a', 'b']);
  t.is(
    canaryLack(route, 2),
    'the canary connection stayed on node-1: no other node has an enrolled pod',
  );
  t.is(canaryLack(route, 1), null);
});

test('without two pods there is no canary, which is told', (t) => {
  const pods = [pod('a', 'node-1'), pod('b', 'node-2')];
  const route = canaryRoute(pods, new Set(['a']));
  t.is(route, null);
  t.regex(canaryLack(route, 2) ?? '', /^no canary connection was made/);
});
