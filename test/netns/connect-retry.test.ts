/** Tests docs/decisions/connect-retry.md end to end. */
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { serveHbone } from '../support/hbone-peer.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, closed, echo } from '../support/tcp-talk.ts';
import { echo as echoTunnel } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const KEY = 'demo/web.demo.svc.cluster.local';
const services = { [KEY]: { 80: 8080 } };
/** A capacity that makes this endpoint almost certainly the first choice. */
const FIRST = { services, capacity: 1_000_000_000 };
const SECOND = { services, capacity: 1 };
const VIP = '10.96.0.1';

/** Long timeouts, so that a busy machine does not look like a dead endpoint. */
const PATIENT = {
  connectTimeoutMs: 30_000,
  handshakeTimeoutMs: 30_000,
  connectRetry: { attempts: 3, totalMs: 90_000 },
} as const;

/** Makes a client, and a service whose first choice is `bad`. */
async function withBadChoice(
  t: ExecutionContext,
  settings: Parameters<typeof TestMesh.start>[1] = {},
): Promise<{ mesh: TestMesh; client: TestPod; bad: TestPod; reached: { good: number } }> {
  const mesh = await TestMesh.start(t, { threads: 1, ...PATIENT, ...settings });
  const client = await mesh.addPod('client');
  const good = await mesh.addPod('good', { workload: SECOND });
  const bad = await mesh.addPod('bad', {
    enrolled: false,
    workload: { ...FIRST, tunnelProtocol: 'HBONE' },
  });
  const reached = { good: 0 };
  await good.serve(8080, (socket) => {
    reached.good += 1;
    echo(socket);
  });
  mesh.state.set(KEY, {
    kind: 'service',
    service: service({ addresses: [{ network: '', ip: VIP, length: null }] }),
  });
  return { mesh, client, bad, reached };
}

async function oneConnection(t: ExecutionContext, mesh: TestMesh, error: RegExp | null) {
  const source = { reporter: 'source' };
  t.is(await mesh.metric('istio_tcp_connections_opened_total', source), 1);
  t.is(await mesh.metric('istio_tcp_connections_closed_total', source), 1);
  const lines = mesh
    .access('connection complete')
    .filter(({ direction }) => direction === 'outbound');
  t.is(lines.length, 1);
  if (error === null) t.is(lines[0]?.['error'], undefined);
  else t.regex(String(lines[0]?.['error']), error);
}

test('an endpoint that refuses is left for another, in one connection', async (t) => {
  const { mesh, client } = await withBadChoice(t);
  t.is(await ask(await client.connect(VIP, 80), 'refused'), 'refused');
  await mesh.accessLines(2);
  t.is(await mesh.metric('weft_connect_retries_total'), 1);
  await oneConnection(t, mesh, null);
});

test('an endpoint that is silent is left for another before the time of all is over', async (t) => {
  const settings = {
    connectTimeoutMs: 60_000,
    connectRetry: { attempts: 3, totalMs: 12_000 },
  };
  const { mesh, client, bad } = await withBadChoice(t, settings);
  await mesh.unplug(bad);
  t.is(await ask(await client.connect(VIP, 80), 'silent'), 'silent');
  await mesh.accessLines(2);
  await oneConnection(t, mesh, null);
});

test('503 and a refused stream are asked elsewhere, 401 and a wrong identity are final', async (t) => {
  const { mesh, client, bad } = await withBadChoice(t);
  const at = { pod: bad, identity: 'spiffe://cluster.local/ns/demo/sa/bad' };
  let answer: 401 | 503 | 'refused' = 503;
  await serveHbone(t, mesh, at, (request) => {
    if (answer === 'refused') request.reset('refused');
    else request.refuse(answer);
    return Promise.resolve();
  });
  t.is(await ask(await client.connect(VIP, 80), 'status'), 'status');
  answer = 'refused';
  t.is(await ask(await client.connect(VIP, 80), 'stream'), 'stream');
  t.is(await mesh.metric('weft_connect_retries_total'), 2);
  answer = 401;
  await closed(await client.connect(VIP, 80));
  t.is(await mesh.metric('weft_connect_retries_total'), 2);
});

test('a peer that was asked is waited for: however slow, nobody is asked in its place', async (t) => {
  // An attempt gets a third of the total; the answer takes longer than that.
  const settings = { connectRetry: { attempts: 3, totalMs: 1_500 } };
  const { mesh, client, bad, reached } = await withBadChoice(t, settings);
  const identity = 'spiffe://cluster.local/ns/demo/sa/bad';
  let answerAfterMs = 0;
  const peer = await serveHbone(t, mesh, { pod: bad, identity }, async (request) => {
    await systemClock.sleep(answerAfterMs);
    return echoTunnel(request);
  });
  // Before a tunnel exists, an attempt may time out during the handshake and go elsewhere.
  await until(
    async () => {
      t.is(await ask(await client.connect(VIP, 80), 'warm'), 'warm');
      return peer.requests.length > 0;
    },
    { what: 'a tunnel to the first choice' },
  );
  const before = await mesh.metric('weft_connect_retries_total');
  const served = reached.good;
  answerAfterMs = 2_000;
  t.is(await ask(await client.connect(VIP, 80), 'slow'), 'slow');
  t.is(reached.good, served);
  t.is(await mesh.metric('weft_connect_retries_total'), before);
});

test('a peer that is not who it should be is never asked again, nor is anybody in its place', async (t) => {
  const { mesh, client, bad } = await withBadChoice(t);
  await serveHbone(
    t,
    mesh,
    { pod: bad, identity: 'spiffe://cluster.local/ns/demo/sa/impostor' },
    echoTunnel,
  );
  await closed(await client.connect(VIP, 80));
  await mesh.accessLines(1);
  t.is(await mesh.metric('weft_connect_retries_total'), 0);
  await oneConnection(t, mesh, /none of the expected identities/);
});

for (const sameNodeFastPath of [false, true]) {
  const way = sameNodeFastPath ? 'without a tunnel' : 'over a tunnel';
  test(`a server that resets at once sees each connection once (${way})`, async (t) => {
    const mesh = await TestMesh.start(t, { threads: 1, sameNodeFastPath, ...PATIENT });
    const client = await mesh.addPod('client');
    const web = await mesh.addPod('web');
    let accepted = 0;
    await web.serve(8080, (socket) => {
      accepted += 1;
      socket.resetAndDestroy();
    });
    const plain = await mesh.addPod('plain', { enrolled: false });
    await plain.serve(8080, (socket) => {
      accepted += 1;
      socket.resetAndDestroy();
    });
    for (const to of [web, plain]) {
      accepted = 0;
      for (let round = 0; round < 3; round += 1) {
        const all = Array.from({ length: 10 }, async () =>
          closed(await client.connect(to.ip, 8080)),
        );
        await Promise.all(all);
      }
      t.is(accepted, 30);
    }
    t.is(await mesh.metric('weft_connect_retries_total'), 0);
    // Connections within the mesh log two lines, the others one; none failed to connect.
    const lines = await mesh.accessLines(90);
    t.is(lines.length, 90);
    t.deepEqual(
      lines.filter((line) => /cannot connect|status 503/.test(String(line['error']))),
      [],
    );
  });
}

for (const sameNodeFastPath of [false, true]) {
  const way = sameNodeFastPath ? 'without a tunnel' : 'over a tunnel';
  test(`a closed port is reported once, and not asked again (${way})`, async (t) => {
    const mesh = await TestMesh.start(t, { threads: 1, sameNodeFastPath, ...PATIENT });
    const client = await mesh.addPod('client');
    const web = await mesh.addPod('web');
    await closed(await client.connect(web.ip, 8080));
    const lines = await mesh.accessLines(2);
    t.is(lines.length, 2);
    t.is(await mesh.metric('weft_connect_retries_total'), 0);
    t.is(await mesh.metric('istio_tcp_connections_opened_total', { reporter: 'destination' }), 1);
  });
}

test('with one attempt a connection is tried once', async (t) => {
  const settings = { connectRetry: { attempts: 1, totalMs: 10_000 } };
  const { mesh, client } = await withBadChoice(t, settings);
  await closed(await client.connect(VIP, 80));
  await mesh.accessLines(1);
  await oneConnection(t, mesh, /ECONNREFUSED/);
});
