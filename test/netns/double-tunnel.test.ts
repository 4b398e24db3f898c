import { once } from 'node:events';
import type { ExecutionContext } from 'ava';
import { serveHbone, splice } from '../support/hbone-peer.ts';
import type { HbonePeer } from '../support/hbone-peer.ts';
import type { IncomingRequest } from '../../lib/hbone/engine.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, closed, echo, heard } from '../support/tcp-talk.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const HOSTNAME = 'web.demo.svc.cluster.local';
const KEY = `demo/${HOSTNAME}`;
const CLIENT = 'spiffe://cluster.local/ns/demo/sa/client';
const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const GATEWAY = 'spiffe://cluster.local/ns/demo/sa/gateway';

interface Networks {
  /** The client's network. */
  readonly near: TestMesh;
  /** The service's network. */
  readonly far: TestMesh;
  readonly client: TestPod;
  readonly web: TestPod;
  readonly gateway: HbonePeer;
}

/** Makes two networks; the near one knows only the gateway of the far one. */
async function networks(
  t: ExecutionContext,
  parts: {
    readonly subjectAltNames?: readonly string[];
    readonly far?: Parameters<typeof TestMesh.start>[1];
    readonly carry?: (pass: (request: IncomingRequest) => Promise<void>) => typeof pass;
  } = {},
): Promise<Networks> {
  const { subjectAltNames = [WEB], carry = (pass) => pass } = parts;
  const near = await TestMesh.start(t, { threads: 1, network: 'near' });
  const far = await TestMesh.start(t, { threads: 1, network: 'far', ...parts.far, beside: near });
  const client = await near.addPod('client', { workload: { network: 'near' } });
  const services = { [KEY]: { 80: 8080 } };
  const web = await far.addPod('web', { workload: { network: 'far', clusterId: 'c2', services } });
  far.state.set(KEY, { kind: 'service', service: service({ ports: { 80: 8080 } }) });
  const door = await near.addPod('gateway', {
    enrolled: false,
    workload: { network: 'near', tunnelProtocol: 'HBONE' },
  });
  const pass = carry(splice(door, { ip: web.ip, port: 15_008 }));
  const gateway = await serveHbone(t, near, { pod: door, identity: GATEWAY }, pass);
  near.state.set(KEY, {
    kind: 'service',
    service: service({
      addresses: [
        { network: 'near', ip: '10.96.0.1', length: null },
        { network: 'near', ip: 'fd00:96::1', length: null },
      ],
      ports: { 80: 8080 },
      subjectAltNames,
    }),
  });
  const { uid } = web.workload;
  near.state.set(uid, {
    kind: 'workload',
    workload: {
      ...web.workload,
      addresses: [],
      networkGateway: {
        destination: { kind: 'address', network: 'near', ip: door.ip },
        hboneMtlsPort: 15_008,
      },
    },
  });
  return { near, far, client, web, gateway };
}

// spec: hbone.md §10, spec: dataplane.md §2.5.3, spec: dataplane.md §2.5.4, spec: dataplane.md §2.5.6, spec: dataplane.md §2.5.7
test('a service of another network is reached by a tunnel inside a tunnel, and named as what answered', async (t) => {
  const { near, far, client, web, gateway } = await networks(t);
  await web.serve(8080, echo);
  const socket = await client.connect('10.96.0.1', 80);
  socket.write('hello ');
  t.is(await heard(socket), 'hello ');
  const [live] = (await near.connections()).filter(({ direction }) => direction === 'outbound');
  t.is(live?.protocol, 'DOUBLEHBONE');
  t.is(live?.destinationIdentity, WEB);
  t.is(await ask(socket, 'world'), 'world');
  t.is(await ask(await client.connect('fd00:96::1', 80), 'six'), 'six');

  // One tunnel for each client address: only connections from the same address share a tunnel.
  t.is(gateway.tunnels.length, 2);
  t.is(gateway.requests.length, 2);
  const [outer] = gateway.requests;
  t.is(outer?.authority, `${HOSTNAME}:80`);
  t.is(outer?.peer, CLIENT);
  t.regex(
    outer?.headers['forwarded'] ?? '',
    new RegExp(`^for="${client.ip}:\\d+";host=${HOSTNAME}$`),
  );
  t.regex(outer?.headers['traceparent'] ?? '', /^00-/);
  t.is(outer?.headers['x-forwarded-network'], undefined);

  const [inside] = await far.accessLines(2);
  t.is(inside?.['src.identity'], CLIENT);
  t.is(inside?.['src.workload'], 'client');
  t.is(inside?.['dst.hbone_addr'], `${HOSTNAME}:80`);
  t.is(inside?.['dst.service'], HOSTNAME);
  const [line] = await near.accessLines(2);
  t.is(line?.['dst.workload'], 'web');
  t.is(line?.['dst.cluster'], 'c2');
  t.is(line?.['dst.identity'], WEB);
  t.is(line?.['dst.service'], HOSTNAME);
  t.false('error' in (line ?? {}));
  const labels = {
    reporter: 'source',
    connection_security_policy: 'mutual_tls',
    destination_workload: 'web',
    destination_principal: WEB,
    destination_cluster: 'c2',
  };
  for (const metric of ['opened', 'closed']) {
    t.is(await near.metric(`istio_tcp_connections_${metric}_total`, labels), 2);
    t.is(await near.metric(`istio_tcp_connections_${metric}_total`, { reporter: 'source' }), 2);
  }
  t.is(await near.metric('istio_tcp_received_bytes_total', labels), 14);
});

// spec: dataplane.md §2.5.7
test('without response baggage the gateway is what telemetry names', async (t) => {
  const { near, client, web } = await networks(t, { far: { responseBaggage: false } });
  await web.serve(8080, echo);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'x'), 'x');
  const [line] = await near.accessLines(1);
  t.is(line?.['dst.workload'], 'gateway');
  t.is(line?.['dst.identity'], GATEWAY);
});

// spec: dataplane.md §2.5.5, spec: hbone.md §3
test('inside, only the identities of the service are accepted, and none when it names none', async (t) => {
  for (const subjectAltNames of [['spiffe://cluster.local/ns/demo/sa/other'], []]) {
    const { near, client, web, gateway } = await networks(t, { subjectAltNames });
    let reached = 0;
    await web.serve(8080, () => {
      reached += 1;
    });
    await closed(await client.connect('10.96.0.1', 80));
    const [line] = await near.accessLines(1);
    t.regex(String(line?.['error']), /none of the expected identities|names no identities/);
    t.is(line?.['dst.workload'], 'gateway');
    const failed = { response_flags: 'TLS_FAILURE', destination_workload: 'gateway' };
    t.is(await near.metric('istio_tcp_connections_failed_total', failed), 1);
    t.is(await near.metric('istio_tcp_connections_opened_total'), 1);
    // A peer with a wrong identity is never retried.
    t.is(gateway.requests.length, subjectAltNames.length);
    t.is(reached, 0);
  }
});

// spec: dataplane.md §2.2
test('what the gateway cannot serve now is asked again, what the far end refuses is not', async (t) => {
  let refusals = 1;
  const { near, far, client, web, gateway } = await networks(t, {
    carry: (pass) => (request) => {
      refusals -= 1;
      if (refusals < 0) return pass(request);
      request.refuse(503);
      return Promise.resolve();
    },
  });
  const server = await web.serve(8080, echo);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'again'), 'again');
  t.is(gateway.requests.length, 2);
  server.close();
  await once(server, 'close');
  await closed(await client.connect('10.96.0.1', 80));
  t.is(gateway.requests.length, 3);
  const lines = await near.accessLines(2);
  t.regex(String(lines[1]?.['error']), /status 503/);
  far.state.setPolicy('demo/nobody', {
    name: 'nobody',
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'DENY',
    rules: [{ clauses: [] }],
    dryRun: false,
  });
  await until(
    async () => {
      await closed(await client.connect('10.96.0.1', 80));
      return near.access('connection complete').some((line) => /401/.test(String(line['error'])));
    },
    { what: 'the refusal' },
  );
});

// spec: dataplane.md §2.2
test('a stream that the gateway breaks off before the far end was asked is no answer of the far end', async (t) => {
  let breaks = 2;
  const { client, web, gateway } = await networks(t, {
    carry: (pass) => (request) => {
      breaks -= 1;
      if (breaks < 0) return pass(request);
      request.accept({})?.reset('cut');
      return Promise.resolve();
    },
  });
  await web.serve(8080, echo);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'again'), 'again');
  t.is(gateway.requests.length, 3);
});

test('an endpoint whose gateway cannot be reached is left for one behind another', async (t) => {
  const { near, client, web } = await networks(t);
  await web.serve(8080, echo);
  const wall = await near.addPod('wall', {
    enrolled: false,
    workload: { network: 'near', tunnelProtocol: 'HBONE' },
  });
  const elsewhere = `${web.workload.uid}-elsewhere`;
  const destination = { kind: 'address', network: 'near', ip: wall.ip } as const;
  near.state.set(elsewhere, {
    kind: 'workload',
    workload: {
      ...web.workload,
      uid: elsewhere,
      addresses: [],
      // Almost certainly the first choice.
      capacity: 1_000_000_000,
      networkGateway: { destination, hboneMtlsPort: 15_008 },
    },
  });
  t.is(await ask(await client.connect('10.96.0.1', 80), 'refused'), 'refused');
  t.is(await near.metric('weft_connect_retries_total'), 1);
});

// spec: dataplane.md §2.5.8
test('the inner tunnel ends with its connection, the outer one stays for the next', async (t) => {
  const { near, far, client, web, gateway } = await networks(t);
  await web.serve(8080, echo);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'x'), 'x');
  const reset = await client.connect('10.96.0.1', 80);
  reset.write('x');
  await heard(reset);
  reset.resetAndDestroy();
  await far.accessLines(2);
  await until(() => gateway.tunnels[0]?.streams === 0, { what: 'the carriers to end' });
  t.is(gateway.tunnels.length, 1);
  t.true(gateway.tunnels[0]?.usable);
  t.is(await near.metric('weft_hbone_tunnels_open'), 1);
  await until(async () => (await far.metric('istio_tcp_sockets_open')) === 0, {
    what: 'the far end to let go of the inner tunnels',
  });
  const cut = await client.connect('10.96.0.1', 80);
  cut.write('x');
  await heard(cut);
  gateway.tunnels[0]?.destroy();
  await closed(cut);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'fresh'), 'fresh');
  t.is(gateway.tunnels.length, 2);
});
