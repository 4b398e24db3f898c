import { readdirSync, readlinkSync } from 'node:fs';
import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { pumpStats } from '../../lib/linux/splice-pump.ts';
import { parseRevocationLists } from '../../lib/identity/crl.ts';
import { digest, pour } from '../support/bulk.ts';
import { issueCrl } from '../support/crl-kit.ts';
import { authorizationFixture, matchFixture } from '../support/model-fixtures.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { CLIENT, WEB, podPair, toldByBothEnds } from '../support/pod-pair.ts';
import type { PodPair } from '../support/pod-pair.ts';
import { ask, closed, echo, heard } from '../support/tcp-talk.ts';
import { readAll } from '../support/tunnel-kit.ts';
import { createTunnelPki } from '../support/tunnel-pki.ts';
import { until } from '../support/until.ts';

const TAKEN = 'weft_same_node_connections_total';

function pair(
  t: ExecutionContext,
  options: Parameters<typeof podPair>[1] = {},
  web: Parameters<typeof podPair>[2] = {},
): Promise<PodPair> {
  return podPair(t, { sameNodeFastPath: true, ...options }, web);
}

function account(serviceAccount: string, action: 'ALLOW' | 'DENY', name: string) {
  const match = matchFixture({ serviceAccounts: [{ namespace: 'demo', serviceAccount }] });
  return authorizationFixture({ name, action, rules: [{ clauses: [{ matches: [match] }] }] });
}

/** Counts the sockets of this process, including its threads. */
function openSockets(): number {
  return readdirSync('/proc/self/fd').filter((name) => {
    try {
      return readlinkSync(`/proc/self/fd/${name}`).startsWith('socket:');
    } catch {
      return false;
    }
  }).length;
}

for (const [threads, family] of [
  [1, 'ip6'],
  [2, 'ip'],
] as const) {
  test(`two pods of one node meet without a tunnel, and both ends are told of as with one (${threads} threads, ${family})`, async (t) => {
    const both = await pair(t, { threads });
    const { mesh } = both;
    const { live, lines } = await toldByBothEnds(t, both, family);
    t.deepEqual(
      live.map(({ direction, protocol, path }) => `${direction} ${protocol} ${path}`).sort(),
      ['inbound HBONE same-node', 'outbound HBONE same-node'],
    );
    t.is(new Set(live.map(({ traceId }) => traceId)).size, 1);
    t.true(lines.every((line) => line['path'] === 'same-node'));
    for (const reporter of ['source', 'destination']) {
      t.is(await mesh.metric('weft_first_byte_duration_seconds_count', { reporter }), 1);
      t.is(await mesh.metric(TAKEN, { reporter }), 1);
    }
    t.is(await mesh.metric('weft_hbone_handshakes_total'), 0);
  });
}

test('what is said first, half-closed or much arrives as said', async (t) => {
  const { client, web } = await pair(t);
  await web.serve(5432, (socket) => {
    socket.write('220 ready\n');
    void readAll(socket).then((got) => socket.end(`got ${got.length}`));
  });
  const first = await client.connect(web.ip, 5432);
  t.is(await heard(first), '220 ready\n');
  t.is(await ask(first, 'abc'), 'got 3');
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await web.serve(8080, resolve);
  const near = await client.connect(web.ip, 8080);
  const far = await accepted;
  const [up, gotUp, down, gotDown] = await Promise.all([
    pour(near, 64),
    digest(far),
    pour(far, 64),
    digest(near),
  ]);
  t.is(gotUp, up);
  t.is(gotDown, down);
});

test('a policy refuses and cuts as behind a tunnel, and the client sees the same', async (t) => {
  for (const sameNodeFastPath of [true, false]) {
    const { mesh, client, web } = await pair(t, { sameNodeFastPath });
    const path = sameNodeFastPath ? 'same-node' : undefined;
    await web.serve(8080, echo);
    await mesh.setPolicy('demo/only-api', account('api', 'ALLOW', 'only-api'));
    const refused = await client.connect(web.ip, 8080);
    await closed(refused);
    t.is(refused.bytesRead, 0);
    let lines = await mesh.accessLines(2);
    const outbound = lines.find((line) => line['direction'] === 'outbound');
    t.is(outbound?.['error'], 'the peer refused the connection with status 401');
    const inbound = lines.find((line) => line['direction'] === 'inbound');
    t.regex(String(inbound?.['error']), /policy rejection: denied/);
    t.is(inbound?.['path'] ?? undefined, path);

    await mesh.setPolicy('demo/only-api', account('client', 'ALLOW', 'only-api'));
    const socket = await client.connect(web.ip, 8080);
    socket.write('x');
    try {
      await heard(socket);
    } catch (error) {
      // The lines say why a proxy ended the connection.
      for (const line of mesh.lines.slice(-20)) t.log(JSON.stringify(line));
      throw error;
    }
    const gone = closed(socket);
    mesh.state.setPolicy('demo/no-client', account('client', 'DENY', 'no-client'));
    await gone;
    lines = await mesh.accessLines(4);
    const [cutIn, cutOut] = ['inbound', 'outbound'].map((direction) =>
      lines.findLast((line) => line['direction'] === direction),
    );
    t.is(cutIn?.['policy'], 'demo/no-client');
    t.is(cutIn?.['path'] ?? undefined, path);
    t.is(cutOut?.['bytes_sent'], 1);
    t.regex(String(cutOut?.['error']), /^the peer cut the connection/);
    t.is(await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'DENY' }), 2);
  }
});

test('a port nobody serves fails as behind a tunnel, at once', async (t) => {
  for (const sameNodeFastPath of [true, false]) {
    const { mesh, client, web } = await pair(t, { sameNodeFastPath });
    await closed(await client.connect(web.ip, 1));
    const lines = await mesh.accessLines(2);
    const errors = lines.map((line) => String(line['error']));
    t.is(errors.filter((error) => /cannot connect to .*:1: .*ECONNREFUSED/.test(error)).length, 1);
    t.true(errors.includes('the peer refused the connection with status 503'));
    t.is(await mesh.metric('weft_connect_retries_total'), 0);
  }
});

test('without a certificate of the destination the connection is left to the tunnel, which says why', async (t) => {
  const { mesh, client, web } = await pair(t);
  await web.serve(8080, echo);
  mesh.refused.add(WEB);
  await closed(await client.connect(web.ip, 8080));
  t.true((await mesh.metric('weft_same_node_declined_total')) > 0);
  t.is(await mesh.metric(TAKEN), 0);
  const [line] = await mesh.accessLines(1);
  t.true('error' in (line ?? {}));
  t.false('path' in (line ?? {}));
  mesh.refused.delete(WEB);
  t.is(await ask(await client.connect(web.ip, 8080), 'again'), 'again');
  t.is(await mesh.metric(TAKEN, { reporter: 'source' }), 1);
});

for (const identity of [CLIENT, WEB]) {
  // spec: hbone.md §4
  test(`a revoked certificate cuts the connection and lets no other be made (${identity})`, async (t) => {
    const { mesh, client, web } = await pair(t, { revocation: true });
    await web.serve(8080, echo);
    const socket = await client.connect(web.ip, 8080);
    socket.write('x');
    await heard(socket);
    const gone = closed(socket);
    const revoked = [mesh.chains.get(identity) ?? ''];
    mesh.revoke(parseRevocationLists(await issueCrl(mesh.pki.root, { revoked })));
    await gone;
    for (const line of await mesh.accessLines(2)) {
      t.is(line['path'], 'same-node');
      t.regex(String(line['error']), /a certificate of the peer is revoked: serial [0-9A-F]+/);
    }
    const flag = { response_flags: 'CERT_REVOKED' };
    t.is(await mesh.metric('istio_tcp_connections_failed_total', flag), 2);
    await closed(await client.connect(web.ip, 8080));
    t.is(await mesh.metric(TAKEN), 2);
  });
}

// docs/decisions/changed-roots.md
test('a certificate whose root was taken away ends the connection as a tunnel would', async (t) => {
  const { mesh, client, web } = await pair(t, { distrustGraceMs: 0 });
  await web.serve(8080, echo);
  const socket = await client.connect(web.ip, 8080);
  socket.write('x');
  await heard(socket);
  const gone = closed(socket);
  const { key, ...source } = await (await createTunnelPki('fresh')).issue(WEB, mesh.issue);
  if (typeof key === 'string') throw new Error('a KeyObject crosses to the thread');
  mesh.tell({
    type: 'certificate',
    certificate: { ...source, key, serialNumber: '02' },
  });
  await gone;
  for (const line of await mesh.accessLines(2)) {
    t.is(line['path'], 'same-node');
    t.regex(String(line['error']), /leads to no trusted root any more/);
  }
  t.is(
    await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'TLS_FAILURE' }),
    2,
  );
});

test('the way through a waypoint stays the way', async (t) => {
  const { mesh, client, web } = await pair(t);
  await web.serve(8080, echo);
  const gateway = await mesh.addPod('gateway', { thread: 1 });
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: {
      ...web.workload,
      waypoint: {
        destination: { kind: 'address', network: '', ip: gateway.ip },
        hboneMtlsPort: 15_008,
      },
    },
  });
  await closed(await client.connect(web.ip, 8080));
  t.is(await mesh.metric(TAKEN), 0);
});

test('a stopped pod ends its connections at once or lets them finish, and is asked no more', async (t) => {
  const { mesh, client, web } = await pair(t);
  await web.serve(8080, echo);
  const carried = await client.connect(web.ip, 8080);
  carried.write('a');
  await heard(carried);
  const stopping = mesh.stop(web, 'graceful', 20_000);
  // A thread that answers has read the earlier message. What the client's thread asks comes by another port.
  await mesh.connections();
  await closed(await client.connect(web.ip, 8080));
  t.is(await ask(carried, 'b'), 'b');
  await stopping;

  const api = await mesh.addPod('api', { thread: 1 });
  await api.serve(8080, echo);
  const cut = await client.connect(api.ip, 8080);
  cut.write('a');
  await heard(cut);
  const gone = closed(cut);
  await mesh.stop(api);
  await gone;
  await until(async () => (await mesh.connections()).length === 0, { what: 'both to forget it' });
  t.is(await mesh.metric('weft_splice_connections'), 0);
});

test('the end of the client’s pod is the end at the destination too', async (t) => {
  const { mesh, client, web } = await pair(t);
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await web.serve(8080, resolve);
  const near = await client.connect(web.ip, 8080);
  const far = await accepted;
  near.write('a');
  t.is(await heard(far), 'a');
  const gone = closed(far);
  await mesh.stop(client);
  await gone;
  await until(async () => (await mesh.connections()).length === 0, { what: 'both to forget it' });
  const inbound = (await mesh.accessLines(2)).find((line) => line['direction'] === 'inbound');
  t.is(inbound?.['bytes_recv'], 1);
});

test('a client that gives up while the destination decides leaves nothing behind', async (t) => {
  const { mesh, client, web } = await pair(t);
  const other = await mesh.addPod('other', { thread: 0 });
  await web.serve(8080, echo);
  // The certificates are there before the wait, which has its limit.
  for (const pod of [client, other]) t.is(await ask(await pod.connect(web.ip, 8080), 'a'), 'a');
  await until(async () => (await mesh.connections()).length === 0, { what: 'the first to end' });
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: { ...web.workload, authorizationPolicies: ['demo/unheard-of'] },
  });
  await client.connect(web.ip, 8080);
  await until(async () => (await mesh.connections()).length === 2, { what: 'both to wait' });
  await mesh.stop(client);
  // The word that the client is gone has no order with that of the policies, but with a later request of its thread.
  const later = await other.connect(web.ip, 8080);
  const inboundNow = async (): Promise<number> =>
    (await mesh.connections()).filter(({ direction }) => direction === 'inbound').length;
  await until(async () => (await inboundNow()) === 2, { what: 'the later one to wait' });
  mesh.state.set(web.workload.uid, { kind: 'workload', workload: web.workload });
  t.is(await ask(later, 'a'), 'a');
  await until(async () => (await mesh.connections()).length === 0, { what: 'all to be forgotten' });
  const inbound = (await mesh.accessLines(8)).findLast(
    (line) => line['direction'] === 'inbound' && line['src.workload'] === 'client',
  );
  t.regex(String(inbound?.['error']), /gave up/);
});

test('an application behind a PROXY tunnel is told who comes, before the first byte', async (t) => {
  const { client, web } = await pair(
    t,
    {},
    { workload: { applicationTunnel: { protocol: 'PROXY', port: 15_088 } } },
  );
  const { promise: received, resolve } = Promise.withResolvers<Buffer>();
  await web.serve(15_088, (socket) => {
    void readAll(socket).then(resolve);
    socket.end('thanks');
  });
  t.is(await ask(await client.connect(web.ip, 8080), 'payload'), 'thanks');
  const got = await received;
  t.is(got.subarray(0, 12).toString('hex'), '0d0a0d0a000d0a515549540a');
  t.true(got.includes(CLIENT));
  t.is(got.subarray(16 + got.readUInt16BE(14)).toString(), 'payload');
});

test('the death of the other thread ends what it carried and what waits for it, and hangs nothing', async (t) => {
  const { mesh, client, web } = await pair(t);
  await web.serve(8080, echo);
  const carried = await client.connect(web.ip, 8080);
  carried.write('a');
  await heard(carried);
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: { ...web.workload, authorizationPolicies: ['demo/unheard-of'] },
  });
  const waiting = await client.connect(web.ip, 8080);
  await until(async () => (await mesh.connections()).length === 4, { what: 'it to wait' });
  const gone = [closed(carried), closed(waiting)];
  await mesh.killThread(1);
  await Promise.all(gone);
  const lines = await until(
    () => {
      const ended = mesh.access('connection complete');
      return ended.filter((line) => line['direction'] === 'outbound').length === 2 ? ended : null;
    },
    { timeoutMs: 20_000, what: 'both ends at the client' },
  );
  t.true(lines.some((line) => /has ended/.test(String(line['error']))));
  await until(() => pumpStats().joins === 0, { what: 'the pump to have nothing left' });
});

test('the death of the client’s thread ends its connections at the destination', async (t) => {
  const { mesh, client, web } = await pair(t);
  const { promise: accepted, resolve } = Promise.withResolvers<Socket>();
  await web.serve(8080, resolve);
  const near = await client.connect(web.ip, 8080);
  const far = await accepted;
  near.write('a');
  t.is(await heard(far), 'a');
  const gone = closed(far);
  await mesh.killThread(0);
  await gone;
  await until(async () => (await mesh.connections()).length === 0, { what: 'it to be forgotten' });
  await until(() => pumpStats().joins === 0, { what: 'the pump to have nothing left' });
  t.pass();
});

test('two hundred connections at once, and every descriptor comes back', async (t) => {
  const { mesh, client, web } = await pair(t);
  await web.serve(8080, echo);
  t.is(await ask(await client.connect(web.ip, 8080), 'first'), 'first');
  await until(() => pumpStats().joins === 0, { what: 'the first to end' });
  const before = openSockets();
  const answers = await Promise.all(
    Array.from({ length: 200 }, async (_, index) =>
      ask(await client.connect(web.ip, 8080), `number ${index}`),
    ),
  );
  t.is(new Set(answers).size, 200);
  await until(async () => (await mesh.connections()).length === 0, { what: 'all to end' });
  await until(() => openSockets() <= before, { what: 'the descriptors' });
  t.is(await mesh.metric(TAKEN, { reporter: 'destination' }), 201);
});
