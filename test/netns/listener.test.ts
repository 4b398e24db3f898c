import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { setFlagsFromString } from 'node:v8';
import type { Authorization, Match } from '../../lib/policy/model.ts';
import { digest, pour, stall } from '../support/bulk.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { matchFixture } from '../support/model-fixtures.ts';
import { podPair, toldByBothEnds } from '../support/pod-pair.ts';
import { ask, closed, echo, heard } from '../support/tcp-talk.ts';
import { MIB, readToEnd } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';
import { netnsTest as test } from '../support/netns-test.ts';

function policy(name: string, action: 'ALLOW' | 'DENY', match: Partial<Match>): Authorization {
  return {
    name,
    namespace: 'demo',
    scope: 'NAMESPACE',
    action,
    rules: [{ clauses: [{ matches: [matchFixture(match)] }] }],
    dryRun: false,
  };
}

/** For each filter, waits until sent bytes have arrived, and tells whether the kernel probes the pod's matching connections. */
function probed(pod: TestPod, filters: readonly string[]): Promise<readonly boolean[]> {
  return Promise.all(
    filters.map(async (filter) => {
      const lines = await until(
        async () => {
          const text = await pod.netns.exec('ss', '-tnoH', 'state', 'established', filter);
          return text === '' || text.includes('timer:(on') ? null : text.trim().split('\n');
        },
        { what: `a connection with ${filter} at rest` },
      );
      return lines.every((line) => line.includes('timer:(keepalive,'));
    }),
  );
}

/** Checks that the pod's connections which match have Reno, or the usual congestion control of the namespace. */
async function controlled(
  t: ExecutionContext,
  pod: TestPod,
  expected: Readonly<Record<string, 'reno' | 'usual'>>,
): Promise<void> {
  const usual = await pod.netns.exec('sysctl', '-n', 'net.ipv4.tcp_congestion_control');
  if (usual.trim() === 'reno') t.log('SKIPPED telling Reno from the usual: it is the usual here');
  for (const [filter, control] of Object.entries(expected)) {
    const text = await pod.netns.exec('ss', '-tniOH', 'state', 'established', filter);
    const shown = new RegExp(`\\s${control === 'usual' ? usual.trim() : control}\\s`);
    for (const line of text.trim().split('\n')) t.regex(line, shown, filter);
  }
}

for (const family of ['ip', 'ip6'] as const) {
  // spec: dataplane.md §1, spec: dataplane.md §2.1.9, spec: dataplane.md §2.2, spec: dataplane.md §7.1, spec: dataplane.md §7.5, spec: dataplane.md §9
  test(`pod to pod passes HBONE with both identities and the client address (${family})`, async (t) => {
    const { live } = await toldByBothEnds(t, await podPair(t), family);
    t.deepEqual(live.map(({ direction, protocol }) => `${direction} ${protocol}`).sort(), [
      'inbound HBONE',
      'outbound HBONE',
    ]);
  });
}

// spec: dataplane.md §2.1.5, spec: dataplane.md §2.1.6, spec: dataplane.md §5
test('a service address leads to one of its endpoints, on its target port', async (t) => {
  const mesh = await TestMesh.start(t);
  const client = await mesh.addPod('client');
  const key = 'demo/web.demo.svc.cluster.local';
  const web = await mesh.addPod('web', {
    thread: 1,
    workload: { services: { [key]: { 80: 8080 } } },
  });
  mesh.state.set(key, {
    kind: 'service',
    service: service({ addresses: [{ network: '', ip: '10.96.0.1', length: null }] }),
  });
  await web.serve(8080, echo);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'via the service'), 'via the service');
  const [line] = await mesh.accessLines(2);
  t.is(line?.['dst.service'], 'web.demo.svc.cluster.local');
  const refused = await client.connect('10.96.0.1', 81);
  await closed(refused);
  await until(() => mesh.access('connection failed').length === 1, { what: 'the early denial' });
  t.regex(String(mesh.access('connection failed')[0]?.['error']), /does not define port 81/);
});

// spec: dataplane.md §2.1.6, spec: dataplane.md §8.4, spec: dataplane.md §9
test('what is outside the mesh is reached in plaintext, and reaches in', async (t) => {
  const { mesh, web, client } = await podPair(t);
  const outsider = await mesh.addPod('outsider', { enrolled: false });
  const peers: (string | undefined)[] = [];
  await outsider.serve(9000, echo);
  await web.serve(8080, (socket) => {
    peers.push(socket.remoteAddress);
    echo(socket);
  });
  const out = await client.connect(outsider.ip, 9000);
  out.write('out');
  t.is(await heard(out), 'out');
  await controlled(t, client, { 'sport = :15001': 'reno', 'dport = :9000': 'usual' });
  out.end();
  t.is(await ask(await client.connect(outsider.ip6, 9000), 'out6'), 'out6');
  t.is(await ask(await outsider.connect(web.ip, 8080), 'in'), 'in');
  t.is(await ask(await outsider.connect(web.ip6, 8080), 'in6'), 'in6');
  const held = await outsider.connect(web.ip, 8080);
  held.write('x');
  await heard(held);
  t.deepEqual(await probed(web, ['sport = :15006', 'dport = :8080']), [true, true]);
  await controlled(t, web, { 'sport = :15006': 'usual', 'dport = :8080': 'reno' });
  held.destroy();
  t.deepEqual(
    peers.map((peer) => peer?.replace('::ffff:', '')),
    [outsider.ip, outsider.ip6, outsider.ip],
  );
  await mesh.accessLines(5);
  const plain = { connection_security_policy: 'unknown' };
  t.is(await mesh.metric('istio_tcp_connections_closed_total', plain), 5);
});

// spec: dataplane.md §9, spec: dataplane.md §10
test('a server may speak first and a client may half-close', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(5432, (socket) => {
    socket.write('220 ready\n');
    void readToEnd(socket).then(({ bytes }) => socket.end(`got ${bytes.length}`));
  });
  const socket = await client.connect(web.ip, 5432);
  t.is(await heard(socket), '220 ready\n');
  t.deepEqual(await probed(client, ['sport = :15001', 'dport = :15008']), [true, true]);
  t.deepEqual(await probed(web, ['sport = :15008', 'dport = :5432']), [false, true]);
  await controlled(t, client, { 'sport = :15001': 'reno', 'dport = :15008': 'usual' });
  await controlled(t, web, { 'sport = :15008': 'usual', 'dport = :5432': 'reno' });
  t.is(await ask(socket, 'abc'), 'got 3');
  // A reset by the client is no failure.
  const cut = await client.connect(web.ip, 5432);
  await heard(cut);
  cut.resetAndDestroy();
  const lines = await mesh.accessLines(4);
  t.deepEqual(new Set(lines.map((line) => line['error'])), new Set([undefined]));
});

// spec: dataplane.md §10
test('128 MiB pass each way intact', async (t) => {
  t.timeout(300_000);
  const { client, web } = await podPair(t);
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await web.serve(8080, resolve);
  const near = await client.connect(web.ip, 8080);
  const far = await accepted;
  const [up, gotUp] = await Promise.all([pour(near, 128), digest(far)]);
  const [down, gotDown] = await Promise.all([pour(far, 128), digest(near)]);
  t.is(gotUp, up);
  t.is(gotDown, down);
});

// spec: dataplane.md §7.2.6, spec: dataplane.md §11
test('policies decide on identity; a DENY cuts a live connection and its log names the policy', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  const account = (serviceAccount: string) => ({
    serviceAccounts: [{ namespace: 'demo', serviceAccount }],
  });
  await mesh.setPolicy('demo/only-api', policy('only-api', 'ALLOW', account('api')));
  const refused = await client.connect(web.ip, 8080);
  await closed(refused);
  let lines = await mesh.accessLines(2);
  const inbound = lines.find((line) => line['direction'] === 'inbound');
  t.regex(String(inbound?.['error']), /policy rejection: denied/);
  const outbound = lines.find((line) => line['direction'] === 'outbound');
  t.regex(String(outbound?.['error']), /401/);

  await mesh.setPolicy('demo/only-api', policy('only-api', 'ALLOW', account('client')));
  const socket = await client.connect(web.ip, 8080);
  socket.write('x');
  await heard(socket);
  const gone = closed(socket);
  mesh.state.setPolicy('demo/no-client', policy('no-client', 'DENY', account('client')));
  await gone;
  lines = await mesh.accessLines(4);
  const cut = lines.filter((line) => line['direction'] === 'inbound').at(-1);
  t.is(cut?.['policy'], 'demo/no-client');
  t.is(cut?.['rule'], 0);
  t.regex(String(cut?.['error']), /policy change: explicitly denied by policy demo\/no-client/);
  t.is(await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'DENY' }), 2);
  t.true(mesh.lines.some((line) => line['message'] === 'policy.connection-cut'));
});

test('a change of the workload own list of policies also cuts', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  await mesh.setPolicy('demo/selected', {
    ...policy('selected', 'DENY', { destinationPorts: [8080] }),
    scope: 'WORKLOAD_SELECTOR',
  });
  const socket = await client.connect(web.ip, 8080);
  socket.write('x');
  await heard(socket);
  const gone = closed(socket);
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: { ...web.workload, authorizationPolicies: ['demo/selected'] },
  });
  await gone;
  t.pass();
});

test('a reference to a policy nobody knows is waited for, and served when it comes', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  // The tunnel stands before the wait, which has its limit.
  t.is(await ask(await client.connect(web.ip, 8080), 'first'), 'first');
  await until(async () => (await mesh.connections()).length === 0, { what: 'the first to end' });
  let answer: string | null = null;
  const refusals: unknown[] = [];
  // The wait has a limit. A test that stood still for longer asks again, with a reference that is new.
  for (let number = 0; number < 3 && answer === null; number += 1) {
    const name = `late-${number}`;
    mesh.state.set(web.workload.uid, {
      kind: 'workload',
      workload: { ...web.workload, authorizationPolicies: [`demo/${name}`] },
    });
    const socket = await client.connect(web.ip, 8080);
    const asked = ask(socket, 'patience').catch((error: unknown) => {
      refusals.push(error);
      return null;
    });
    const waits = async (): Promise<boolean> => (await mesh.connections()).length === 2;
    await until(async () => socket.closed || (await waits()), { what: 'the wait' });
    mesh.state.setPolicy(`demo/${name}`, {
      ...policy(name, 'ALLOW', { destinationPorts: [8080] }),
      scope: 'WORKLOAD_SELECTOR',
    });
    answer = await asked;
  }
  t.is(answer, 'patience', refusals.join(', '));
});

test('a reference to a policy nobody ever knows denies and names it', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: { ...web.workload, authorizationPolicies: ['demo/missing'] },
  });
  const socket = await client.connect(web.ip, 8080);
  await closed(socket);
  const line = (await mesh.accessLines(2)).find(({ direction }) => direction === 'inbound');
  t.is(line?.['policy'], 'demo/missing');
});

// spec: dataplane.md §8.3
test('plaintext is refused by a policy that wants identities', async (t) => {
  const { mesh, client, web } = await podPair(t);
  const outsider = await mesh.addPod('outsider', { enrolled: false });
  await web.serve(8080, echo);
  await mesh.setPolicy(
    'demo/strict',
    policy('strict', 'DENY', { notPrincipals: [{ kind: 'presence' }] }),
  );
  const refused = await outsider.connect(web.ip, 8080);
  await closed(refused);
  t.is(await ask(await client.connect(web.ip, 8080), 'mine'), 'mine');
  const line = (await mesh.accessLines(3)).find((each) => 'error' in each);
  t.is(line?.['policy'], 'demo/strict');
});

// spec: dataplane.md §1, spec: dataplane.md §2.1.2, spec: dataplane.md §7.2.7
test('a port nobody serves, a refused identity and an unknown workload give clear errors', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await closed(await client.connect(web.ip, 1));
  const lines = await until(
    () => {
      const done = mesh.access('connection complete');
      return done.some((line) => line['direction'] === 'outbound') ? done : null;
    },
    { what: 'the outbound line' },
  );
  t.true(
    lines.some((line) => /cannot connect to .*:1: .*ECONNREFUSED/.test(String(line['error']))),
  );
  t.true(lines.some((line) => /status 503/.test(String(line['error']))));
  t.is(
    await mesh.metric('istio_tcp_connections_failed_total', {
      reporter: 'source',
      response_flags: 'CONNECT',
    }),
    1,
  );

  mesh.refused.add('spiffe://cluster.local/ns/demo/sa/denied');
  const denied = await mesh.addPod('denied');
  const socket = await denied.connect(web.ip, 8080);
  await closed(socket);
  await until(
    () =>
      mesh
        .access('connection complete')
        .some((line) => /not on this node/.test(String(line['error']))),
    { what: 'the refused identity' },
  );

  const stranger = await mesh.addPod('stranger', { known: false });
  const lost = await stranger.connect(web.ip, 8080);
  await closed(lost);
  await until(
    () =>
      mesh
        .access('connection failed')
        .some((line) => /does not know the workload/.test(String(line['error']))),
    { what: 'the early denial' },
  );
});

test('nothing passes in plaintext while the mesh cannot tell', async (t) => {
  const { mesh, client } = await podPair(t);
  const outsider = await mesh.addPod('outsider', { enrolled: false });
  let reached = 0;
  await outsider.serve(9000, (socket) => {
    reached += 1;
    socket.end();
  });
  mesh.state.synced = false;
  const socket = await client.connect(outsider.ip, 9000);
  await closed(socket);
  t.is(reached, 0);
  const failures = await until(
    () => {
      const lines = mesh.access('connection failed');
      return lines.length > 0 ? lines : null;
    },
    { what: 'the early denial' },
  );
  t.regex(String(failures[0]?.['error']), /cannot tell yet/);
  mesh.state.synced = true;
  const again = await client.connect(outsider.ip, 9000);
  await closed(again);
  t.is(reached, 1);
});

// spec: dataplane.md §2.1.2, spec: dataplane.md §8.2
test('what a pod calls and what calls it waits for its workload, and is served when that is known', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const outsider = await mesh.addPod('outsider', { enrolled: false });
  const late = await mesh.addPod('late', { known: false });
  await late.serve(9000, echo);
  await outsider.serve(9000, echo);
  const answer = ask(await outsider.connect(late.ip, 9000), 'anybody?');
  const called = ask(await late.connect(outsider.ip, 9000), 'somebody?');
  for (const reporter of ['source', 'destination']) {
    await until(async () => (await mesh.metric('istio_tcp_sockets_open', { reporter })) === 1, {
      what: `the ${reporter} to wait`,
    });
  }
  mesh.state.set(late.workload.uid, { kind: 'workload', workload: late.workload });
  t.is(await answer, 'anybody?');
  t.is(await called, 'somebody?');
});

// spec: dataplane.md §8.1
test('a call to a port of the proxy itself is refused', async (t) => {
  const { mesh, client, web } = await podPair(t);
  const outsider = await mesh.addPod('outsider', { enrolled: false });
  const loop = await outsider.connect(web.ip, 15_001);
  await closed(loop);
  await until(() => mesh.access('connection failed').length === 1, { what: 'the refusal' });
  t.regex(String(mesh.access('connection failed')[0]?.['error']), /proxy's own/);
  await web.serve(8080, echo);
  t.is(await ask(await client.connect(web.ip, 8080), 'fine'), 'fine');
});

// spec: dataplane.md §10
test('a stalled reader holds its sender back and no other connection', async (t) => {
  const { client, web } = await podPair(t);
  let first = true;
  await web.serve(8080, (socket) => {
    if (!first) echo(socket);
    else socket.pause();
    first = false;
  });
  const slow = await client.connect(web.ip, 8080);
  const sent = await stall(slow, { limit: 512 * MIB, timeoutMs: 30_000 });
  t.true(sent < 64 * MIB, `${sent} bytes`);
  t.is(await ask(await client.connect(web.ip, 8080), 'not held back'), 'not held back');
  slow.destroy();
});

// spec: dataplane.md §11
test('a stopped pod ends its connections at once or lets them finish', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  const carried = await client.connect(web.ip, 8080);
  carried.write('a');
  await heard(carried);
  const stopping = mesh.stop(web, 'graceful', 20_000);
  t.is(await ask(carried, 'b'), 'b');
  await stopping;
  const refused = await client.connect(web.ip, 8080);
  await closed(refused);

  const api = await mesh.addPod('api', { thread: 1 });
  await api.serve(8080, echo);
  const cut = await client.connect(api.ip, 8080);
  cut.write('a');
  await heard(cut);
  const gone = closed(cut);
  await mesh.stop(api);
  await gone;
  t.is(await mesh.metric('weft_listener_pods'), 1);
});

test('connections go on when a certificate expires, new ones use its successor', async (t) => {
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  mesh.issue = { lifeMs: 20_000 };
  const carried = await client.connect(web.ip, 8080);
  carried.write('a');
  await heard(carried);
  await until(async () => (await mesh.metric('weft_hbone_tunnels_open')) === 0, {
    what: 'the tunnel to retire',
  });
  mesh.issue = {};
  t.is(await ask(await client.connect(web.ip, 8080), 'fresh'), 'fresh');
  t.is(await ask(carried, 'b'), 'b');
});

// spec: hbone.md §9
test('many connections at once share a tunnel and all come through, also while memory is given back', async (t) => {
  // As the launcher does, for later threads.
  setFlagsFromString('--expose-gc');
  const { mesh, client, web } = await podPair(t);
  await web.serve(8080, echo);
  const asked = Array.from({ length: 150 }, async (_, index) =>
    ask(await client.connect(web.ip, 8080), `number ${index}`),
  );
  mesh.tell({ type: 'memory.release' });
  const answers = await Promise.all(asked);
  t.deepEqual(
    answers,
    Array.from({ length: 150 }, (_, index) => `number ${index}`),
  );
  t.true((await mesh.metric('weft_hbone_tunnels_open')) <= 2);
});
