/** Tests outbound paths other than plain tunnels of the own network (docs/spec/dataplane.md §2 to §6), end to end. */
import type { ExecutionContext } from 'ava';
import type { GatewayAddress, Service } from '../../lib/state/model.ts';
import { serveHbone } from '../support/hbone-peer.ts';
import type { HbonePeer } from '../support/hbone-peer.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, closed, echo, heard } from '../support/tcp-talk.ts';
import { echo as echoTunnel } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const HOSTNAME = 'web.demo.svc.cluster.local';
const KEY = `demo/${HOSTNAME}`;
const WAYPOINT = 'spiffe://cluster.local/ns/demo/sa/waypoint';
const vip = (ip: string, length: number | null = null) => ({ network: '', ip, length });
const VIPS = [vip('10.96.0.1'), vip('fd00:96::1')];
const byName: GatewayAddress = {
  destination: { kind: 'hostname', namespace: 'demo', hostname: 'waypoint.demo' },
  hboneMtlsPort: 15_008,
};

function setService(mesh: TestMesh, parts: Partial<Service> = {}): void {
  mesh.state.set(KEY, { kind: 'service', service: service({ addresses: VIPS, ...parts }) });
}

interface Guarded {
  readonly mesh: TestMesh;
  readonly client: TestPod;
  /** The waypoint's pod; it answers requests itself. */
  readonly place: TestPod;
  readonly waypoint: HbonePeer;
}

/** Makes a client, and a waypoint behind the service `waypoint.demo`. */
async function withWaypoint(t: ExecutionContext, identity = WAYPOINT): Promise<Guarded> {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const place = await mesh.addPod('waypoint', {
    enrolled: false,
    workload: { tunnelProtocol: 'HBONE', services: { 'demo/waypoint.demo': {} } },
  });
  const waypoint = await serveHbone(t, mesh, { pod: place, identity }, echoTunnel);
  mesh.state.set('demo/waypoint.demo', {
    kind: 'service',
    service: service({
      name: 'waypoint',
      hostname: 'waypoint.demo',
      addresses: [vip('10.96.0.50')],
      ports: { 15_008: 15_008 },
    }),
  });
  return { mesh, client, place, waypoint };
}

// spec: dataplane.md §2.1.4, spec: dataplane.md §2.3, spec: hbone.md §5
test("a service's waypoint gets the address that was dialled, by name, by address, and by weight", async (t) => {
  const { mesh, client, place, waypoint } = await withWaypoint(t);
  setService(mesh, { waypoint: byName });
  t.is(await ask(await client.connect('10.96.0.1', 80), 'v4'), 'v4');
  t.is(await ask(await client.connect('fd00:96::1', 9999), 'v6'), 'v6');
  t.deepEqual(
    waypoint.requests.map(({ authority }) => authority),
    ['10.96.0.1:80', '[fd00:96::1]:9999'],
  );
  t.regex(waypoint.requests[0]?.headers['forwarded'] ?? '', new RegExp(`;host=${HOSTNAME}$`));
  const [line] = await mesh.accessLines(2);
  t.is(line?.['dst.workload'], 'waypoint');
  t.is(line?.['dst.service'], HOSTNAME);
  t.is(line?.['dst.identity'], WAYPOINT);
  t.is(line?.['dst.hbone_addr'], '10.96.0.1:80');
  const byAddress: GatewayAddress = {
    destination: { kind: 'address', network: '', ip: place.ip },
    hboneMtlsPort: 15_008,
  };
  setService(mesh, { weightedWaypoints: [{ destination: byAddress, weight: 1 }] });
  t.is(await ask(await client.connect('10.96.0.1', 80), 'by weight'), 'by weight');
  t.is(waypoint.requests.length, 3);
});

// spec: dataplane.md §2.1.4, spec: dataplane.md §2.3
test('an unknown waypoint fails the connection early, it does not go around', async (t) => {
  const { mesh, client } = await withWaypoint(t);
  const web = await mesh.addPod('web', { workload: { services: { [KEY]: {} } } });
  await web.serve(8080, echo);
  const gone = { ...byName.destination, hostname: 'gone.demo' } as GatewayAddress['destination'];
  setService(mesh, { waypoint: { ...byName, destination: gone } });
  await closed(await client.connect('10.96.0.1', 80));
  const [line] = await until(
    () => {
      const lines = mesh.access('connection failed');
      return lines.length > 0 ? lines : null;
    },
    { what: 'the early denial' },
  );
  t.regex(String(line?.['error']), /unknown waypoint demo\/gone\.demo:15008/);
  t.is(line?.['direction'], 'outbound');
  t.regex(String(line?.['src.addr']), new RegExp(`^${client.ip}:`));
  t.is(line?.['dst.addr'], '10.96.0.1:80');
  t.is(await mesh.metric('istio_tcp_connections_opened_total'), 0);
});

// spec: hbone.md §3
test('who is not the waypoint does not pass for it', async (t) => {
  const { mesh, client, waypoint } = await withWaypoint(t, 'spiffe://cluster.local/ns/demo/sa/web');
  setService(mesh, { waypoint: byName });
  await closed(await client.connect('10.96.0.1', 80));
  const [line] = await mesh.accessLines(1);
  t.regex(String(line?.['error']), /none of the expected identities/);
  t.is(waypoint.requests.length, 0);
});

// spec: dataplane.md §2.1.8
test("a workload's waypoint is used for its address and not by the waypoint itself", async (t) => {
  const { mesh, client, waypoint, place } = await withWaypoint(t);
  const web = await mesh.addPod('web', {
    workload: { waypoint: byName, services: { [KEY]: { 80: 8080 } } },
  });
  await web.serve(8080, (socket) => socket.end('the pod itself'));
  t.is(await ask(await client.connect(web.ip, 8080), 'waypoint'), 'waypoint');
  t.is(await ask(await client.connect(web.ip6, 8080), 'waypoint6'), 'waypoint6');
  t.deepEqual(
    waypoint.requests.map(({ authority }) => authority),
    [`${web.ip}:8080`, `[${web.ip6}]:8080`],
  );
  // Through a service the workload is reached directly, and its proxy accepts that path.
  setService(mesh);
  t.is(await ask(await client.connect('10.96.0.1', 80), 'x'), 'the pod itself');
  // An enrolled replica of the waypoint connects to the workload.
  const replica = await mesh.addPod('replica', {
    workload: { serviceAccount: 'replica', services: { 'demo/waypoint.demo': {} } },
  });
  mesh.state.set(place.workload.uid, null);
  await until(async () => (await ask(await replica.connect(web.ip, 8080), 'x')) !== 'x', {
    what: 'the replica to be known as the waypoint',
  });
});

// spec: dataplane.md §2.1.6
test('a service in PASSTHROUGH mode is dialled as it is', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const outside = await mesh.addPod('outside', { enrolled: false, known: false });
  await outside.serve(9000, echo);
  const loadBalancing = {
    routingPreference: [],
    mode: 'PASSTHROUGH',
    healthPolicy: 'ONLY_HEALTHY',
  } as const;
  setService(mesh, { addresses: [vip(outside.ip), vip(outside.ip6)], loadBalancing });
  t.is(await ask(await client.connect(outside.ip, 9000), 'v4'), 'v4');
  t.is(await ask(await client.connect(outside.ip6, 9000), 'v6'), 'v6');
  const lines = await mesh.accessLines(2);
  for (const line of lines) t.is(line['dst.service'], undefined);
});

// spec: dataplane.md §3.3, spec: dataplane.md §2.1.5
test('any address of a range leads to the endpoints the service has now', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const services = { [KEY]: { 80: 8080 } };
  const first = await mesh.addPod('first', { workload: { services } });
  await first.serve(8080, (socket) => socket.end('first'));
  setService(mesh, { addresses: [vip('10.97.0.0', 16), vip('fd97::', 64)] });
  t.is(await ask(await client.connect('10.97.3.4', 80), ''), 'first');
  const second = await mesh.addPod('second', { workload: { services } });
  await second.serve(8080, (socket) => socket.end('second'));
  mesh.state.set(first.workload.uid, {
    kind: 'workload',
    workload: { ...first.workload, services: {} },
  });
  for (const ip of ['10.97.3.4', '10.97.200.1', 'fd97::77']) {
    await until(async () => (await ask(await client.connect(ip, 80), '')) === 'second', {
      what: `${ip} to lead to the new endpoint`,
    });
  }
  t.pass();
});

// spec: dataplane.md §6.4
test('an endpoint with a hostname is resolved, in the family that was dialled', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  // The name resolves to the loopback of the connecting pod.
  await client.serve(9090, echo);
  await mesh.addPod('named', {
    enrolled: false,
    workload: { addresses: [], hostname: 'localhost', services: { [KEY]: { 80: 9090 } } },
  });
  setService(mesh);
  const socket = await client.connect('10.96.0.1', 80);
  socket.write('x');
  t.is(await heard(socket), 'x');
  const [live] = await mesh.connections();
  t.is(live?.actualDestination, '127.0.0.1:9090');
  t.is(await ask(socket, 'y'), 'y');
  await mesh.addPod('nowhere', {
    enrolled: false,
    workload: {
      uid: 'Kubernetes//Pod/demo/named',
      name: 'named',
      addresses: [],
      hostname: 'no-such-name.invalid',
      services: { [KEY]: { 80: 9090 } },
    },
  });
  await until(
    async () => {
      const attempt = await client.connect('10.96.0.1', 80);
      attempt.end();
      await closed(attempt);
      return mesh.access('connection failed').length > 0;
    },
    { what: 'the early denial' },
  );
  t.regex(String(mesh.access('connection failed')[0]?.['error']), /no-such-name\.invalid/);
});
