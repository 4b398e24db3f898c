import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { ExecutionContext } from 'ava';
import { MAX_AUTHORITY_LENGTH, MAX_FORWARDED_LENGTH } from '../../lib/hbone/peer-text.ts';
import { formatIp } from '../../lib/net/address.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { rawRequests, tunnelTo } from '../support/hbone-peer.ts';
import { matchFixture } from '../support/model-fixtures.ts';
import { TestMesh } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, closed, echo } from '../support/tcp-talk.ts';
import { readAll, roundTrip } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const HOSTNAME = 'web.demo.svc.cluster.local';
const KEY = `demo/${HOSTNAME}`;
const PEER = 'spiffe://cluster.local/ns/demo/sa/peer';
const WAYPOINT = 'spiffe://cluster.local/ns/demo/sa/waypoint';
const vip = (ip: string, network = '') => ({ network, ip, length: null });

interface Ends {
  readonly mesh: TestMesh;
  /** The called pod. */
  readonly web: TestPod;
  /** A peer that speaks HBONE itself. */
  readonly peer: TestPod;
}

async function ends(
  t: ExecutionContext,
  parts: {
    readonly settings?: Parameters<typeof TestMesh.start>[1];
    readonly workload?: Partial<Workload>;
    readonly service?: Partial<Service>;
  } = {},
): Promise<Ends> {
  const mesh = await TestMesh.start(t, { threads: 1, ...parts.settings });
  const services = { [KEY]: { 80: 8080 } };
  const web = await mesh.addPod('web', { workload: { services, ...parts.workload } });
  const peer = await mesh.addPod('peer', { enrolled: false });
  setService(mesh, parts.service);
  return { mesh, web, peer };
}

function setService(mesh: TestMesh, parts: Partial<Service> = {}): void {
  const addresses = [vip('10.96.0.1'), vip('fd00:96::1')];
  mesh.state.set(KEY, {
    kind: 'service',
    service: service({ addresses, ports: { 80: 9090, 81: 0 }, ...parts }),
  });
}

function denyPort(mesh: TestMesh, port: number): Promise<void> {
  return mesh.setPolicy('demo/port', {
    name: 'port',
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'DENY',
    rules: [{ clauses: [{ matches: [matchFixture({ destinationPorts: [port] })] }] }],
    dryRun: false,
  });
}

// spec: dataplane.md §7.2.1, spec: dataplane.md §7.2.2, spec: dataplane.md §7.2.4, spec: dataplane.md §7.2.5
// spec: dataplane.md §7.2.6, spec: dataplane.md §7.2.7, spec: dataplane.md §7.2.8, spec: hbone.md §7
test('each step answers with its own status, headers alone, and only the later ones are counted as connections', async (t) => {
  const { mesh, web, peer } = await ends(t);
  await web.serve(8080, echo);
  await denyPort(mesh, 7070);
  const ask = await rawRequests(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const connect = (authority: string) => ask({ ':method': 'CONNECT', ':authority': authority });
  const early: [string, number][] = [
    ['nonsense', 400],
    [`${'x'.repeat(MAX_AUTHORITY_LENGTH - 3)}:80`, 503],
    [`${'x'.repeat(MAX_AUTHORITY_LENGTH - 2)}:80`, 400],
    [`${'x'.repeat(10_000)}:80`, 400],
    [':80', 400],
    ['10.9.0.99:8080', 400],
    [`[${web.ip6}]:8080`, 400],
    ['unknown.example:80', 503],
    [`${HOSTNAME}:81`, 503],
    [`${web.ip}:15001`, 503],
  ];
  const get = { ':method': 'GET', ':scheme': 'https', ':path': '/', ':authority': 'x' };
  t.like(await ask(get), { status: 400, ended: true, baggage: undefined });
  for (const [authority, status] of early) {
    t.deepEqual(await connect(authority), { status, ended: true, baggage: undefined }, authority);
  }
  const forwarded = 'x'.repeat(MAX_FORWARDED_LENGTH + 1);
  const wordy = { ':method': 'CONNECT', ':authority': `${web.ip}:8080`, forwarded };
  t.like(await ask(wordy), { status: 400, ended: true });
  await until(() => mesh.access('connection failed').length === early.length + 2, {
    what: 'the early denials',
  });
  for (const line of mesh.access('connection failed')) t.true(JSON.stringify(line).length < 1_000);
  t.is(await mesh.metric('istio_tcp_connections_opened_total'), 0);
  const refused = { ended: true, baggage: undefined };
  t.deepEqual(await connect(`${web.ip}:7070`), { status: 401, ...refused });
  t.deepEqual(await connect(`${web.ip}:1`), { status: 503, ...refused });
  await mesh.accessLines(2);
  t.is(await mesh.metric('istio_tcp_connections_opened_total'), 2);
  t.is(await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'DENY' }), 1);
  t.is(await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'CONNECT' }), 1);
  const accepted = await connect(`${web.ip}:8080`);
  t.like(accepted, { status: 200, ended: false });
  t.regex(accepted.baggage ?? '', /k8s\.namespace\.name=demo,k8s\.deployment\.name=web/);
});

// spec: dataplane.md §7.2.6
test('refused by a policy that came while the application was connected, it hears so', async (t) => {
  const { mesh, web, peer } = await ends(t);
  // The application's queue looks full to its clients.
  await web.netns.exec(
    'iptables',
    '-w',
    '-I',
    'INPUT',
    ...'-p tcp --dport 8080 -j DROP'.split(' '),
  );
  const ask = await rawRequests(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const answer = ask({ ':method': 'CONNECT', ':authority': `${web.ip}:8080` });
  await until(async () => (await mesh.connections()).some(({ policy }) => policy !== null), {
    what: 'the request to be admitted',
  });
  await denyPort(mesh, 8080);
  t.deepEqual(await answer, { status: 401, ended: true, baggage: undefined });
  const [line] = await mesh.accessLines(1);
  t.is(line?.['policy'], 'demo/port');
});

// spec: dataplane.md §7.2.3
test('a pod whose workload the mesh does not know answers 503', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const web = await mesh.addPod('web', { known: true });
  const peer = await mesh.addPod('peer', { enrolled: false });
  const ask = await rawRequests(t, mesh, { pod: peer, identity: PEER }, web.ip);
  mesh.state.set(web.workload.uid, null);
  const answer = await ask({ ':method': 'CONNECT', ':authority': `${web.ip}:8080` });
  t.is(answer.status, 503);
});

for (const family of ['ip', 'ip6'] as const) {
  // spec: dataplane.md §7.3.1, spec: dataplane.md §7.3.2, spec: dataplane.md §7.4, spec: dataplane.md §7.6
  test(`a hostname is translated by the pod's own ports, and the address that was dialled is the target (${family})`, async (t) => {
    const { mesh, web, peer } = await ends(t);
    await web.serve(8080, echo);
    const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web[family]);
    const stream = await tunnel.open({ authority: `${HOSTNAME}:80`, headers: {} });
    t.is((await roundTrip(stream, 'by name')).toString(), 'by name');
    const [line] = await mesh.accessLines(1);
    t.is(line?.['dst.service'], HOSTNAME);
    t.is(line?.['dst.hbone_addr'], `${HOSTNAME}:80`);
    t.regex(String(line?.['dst.addr']), /:15008$/);
  });
}

// spec: dataplane.md §7.3.4
test('a pod that is the waypoint of an address takes its traffic, another does not', async (t) => {
  const { mesh, web, peer } = await ends(t);
  await web.serve(9000, echo);
  const backend = await mesh.addPod('backend', { enrolled: false });
  const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const request = { authority: `${backend.ip}:9000`, headers: {} };
  await t.throwsAsync(tunnel.open(request), { message: /400/ });
  mesh.state.set(backend.workload.uid, {
    kind: 'workload',
    workload: {
      ...backend.workload,
      waypoint: {
        destination: { kind: 'hostname', namespace: 'demo', hostname: HOSTNAME },
        hboneMtlsPort: 15_008,
      },
    },
  });
  const stream = await until(() => tunnel.open(request).catch(() => null), {
    what: 'the waypoint',
  });
  t.is((await roundTrip(stream, 'sandwich')).toString(), 'sandwich');
});

interface Received {
  readonly source: string;
  readonly destination: string;
  readonly tlvs: Readonly<Record<number, string>>;
  readonly rest: string;
  /** The connection's own source address. */
  readonly from: string;
}

/** Reads a PROXY v2 header as its receiver would; written from the protocol's specification. */
async function receive(socket: Socket): Promise<Received> {
  const from = (socket.remoteAddress ?? '').replace('::ffff:', '');
  const bytes = await readAll(socket);
  socket.end('thanks');
  const signature = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
  if (!bytes.subarray(0, 12).equals(signature)) throw new Error('not PROXY v2');
  if (bytes[12] !== 0x21) throw new Error('not the PROXY command');
  const size = { 0x11: 4, 0x21: 16 }[bytes.readUInt8(13)];
  if (size === undefined) throw new Error('neither TCP over IPv4 nor over IPv6');
  const end = 16 + bytes.readUInt16BE(14);
  const at = (index: number): string =>
    `${formatIp(bytes.subarray(16 + size * index, 16 + size * (index + 1)))} ${bytes.readUInt16BE(16 + 2 * size + 2 * index)}`;
  const tlvs: Record<number, string> = {};
  let offset = 16 + 2 * size + 4;
  while (offset < end) {
    const length = bytes.readUInt16BE(offset + 1);
    const value = bytes.subarray(offset + 3, offset + 3 + length);
    tlvs[bytes.readUInt8(offset)] = value.toString();
    offset += 3 + length;
  }
  if (offset !== end) throw new Error('the last TLV is longer than the header');
  return { source: at(0), destination: at(1), tlvs, rest: bytes.subarray(end).toString(), from };
}

for (const family of ['ip', 'ip6'] as const) {
  // spec: dataplane.md §7.3.3, spec: dataplane.md §7.4, spec: dataplane.md §7.5
  test(`an application behind a PROXY tunnel learns client, target and identity, over loopback (${family})`, async (t) => {
    const { mesh, web, peer } = await ends(t, {
      workload: { applicationTunnel: { protocol: 'PROXY', port: 15_088 } },
    });
    const got: Received[] = [];
    await web.serve(15_088, (socket) => void receive(socket).then((each) => got.push(each)));
    const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web[family]);
    const target = family === 'ip' ? '10.77.0.1' : 'fd77::1';
    const written = family === 'ip' ? target : `[${target}]`;
    for (const authority of [`${written}:443`, `${HOSTNAME}:80`]) {
      const stream = await tunnel.open({ authority, headers: {} });
      t.is((await roundTrip(stream, 'payload')).toString(), 'thanks');
    }
    const [byAddress, byName] = got;
    const loopback = family === 'ip' ? '127.0.0.1' : '::1';
    t.like(byAddress, { destination: `${target} 443`, rest: 'payload', from: loopback });
    t.true(byAddress?.source.startsWith(`${peer[family]} `));
    t.deepEqual(byAddress?.tlvs, { 0xd0: PEER });
    // Among the addresses of a name, IPv4 on the own network goes first.
    const mapped = family === 'ip' ? '10.96.0.1' : '::ffff:10.96.0.1';
    t.is(byName?.destination, `${mapped} 80`);
  });
}

// spec: dataplane.md §7.5
test('LOCALHOST_APP_TUNNEL=false reaches the tunnel by the pod address, from the client; policies see the tunnel port', async (t) => {
  const { mesh, web, peer } = await ends(t, {
    settings: { localhostAppTunnel: false },
    workload: { applicationTunnel: { protocol: 'PROXY', port: 15_088 } },
  });
  const got: Received[] = [];
  await web.serve(15_088, (socket) => void receive(socket).then((each) => got.push(each)));
  const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const request = { authority: '10.77.0.1:443', headers: {} };
  await roundTrip(await tunnel.open(request), 'x');
  t.is(got[0]?.from, peer.ip);
  await denyPort(mesh, 15_088);
  await until(
    () =>
      tunnel.open(request).then(
        () => false,
        (error: Error) => /401/.test(error.message),
      ),
    { what: 'the policy' },
  );
});

// spec: dataplane.md §7.4, spec: dataplane.md §7.5
test('a NONE tunnel changes the port and sends no header', async (t) => {
  const { mesh, web, peer } = await ends(t, {
    workload: { applicationTunnel: { protocol: 'NONE', port: 15_088 } },
  });
  await web.serve(15_088, echo);
  const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const stream = await tunnel.open({ authority: '10.77.0.1:443', headers: {} });
  t.is((await roundTrip(stream, 'bare')).toString(), 'bare');
});

const BAGGAGE =
  'k8s.cluster.name=c9,k8s.namespace.name=far,k8s.deployment.name=shop,service.name=shop,service.version=v1';

// spec: hbone.md §5, spec: hbone.md §6
test('a client of another network is described by its baggage, not by who has its address here', async (t) => {
  const { mesh, web, peer } = await ends(t, { settings: { network: '' } });
  await web.serve(8080, echo);
  const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const send = async (headers: Record<string, string>): Promise<void> => {
    await roundTrip(await tunnel.open({ authority: `${web.ip}:8080`, headers }), 'x');
  };
  await send({ baggage: BAGGAGE, 'x-forwarded-network': 'far' });
  await send({ baggage: BAGGAGE, 'x-forwarded-network': '' });
  const lines = await mesh.accessLines(2);
  t.is(lines[0]?.['src.workload'], 'shop');
  t.is(lines[0]?.['src.cluster'], 'c9');
  t.is(lines[1]?.['src.workload'], 'peer');
  const labels = { source_workload: 'shop', source_version: 'v1', source_cluster: 'c9' };
  t.is(await mesh.metric('istio_tcp_connections_opened_total', labels), 1);
  t.is(await mesh.metric('istio_tcp_connections_opened_total', { source_workload: 'peer' }), 1);
});

// spec: hbone.md §7
test('ENABLE_RESPONSE_BAGGAGE=false neither sends baggage nor believes any', async (t) => {
  const { mesh, web, peer } = await ends(t, { settings: { responseBaggage: false } });
  await web.serve(8080, echo);
  const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const headers = { baggage: BAGGAGE, 'x-forwarded-network': 'far' };
  const stream = await tunnel.open({ authority: `${web.ip}:8080`, headers });
  t.is(stream.headers['baggage'], undefined);
  await roundTrip(stream, 'x');
  const [line] = await mesh.accessLines(1);
  t.is(line?.['src.workload'], undefined);
});

const WAYPOINT_REFERENCE = {
  destination: { kind: 'hostname', namespace: 'demo', hostname: 'waypoint.demo' },
  hboneMtlsPort: 15_008,
} as const;

/** Makes a pod with a waypoint, whose part the peer's pod plays. */
async function guarded(
  t: ExecutionContext,
  settings: Parameters<typeof TestMesh.start>[1] = {},
): Promise<Ends> {
  const found = await ends(t, { settings, workload: { waypoint: WAYPOINT_REFERENCE } });
  const { mesh, peer } = found;
  const hostname = 'waypoint.demo';
  mesh.state.set(`demo/${hostname}`, {
    kind: 'service',
    service: service({ name: 'waypoint', hostname, ports: { 15_008: 15_008 } }),
  });
  mesh.state.set(peer.workload.uid, {
    kind: 'workload',
    workload: {
      ...peer.workload,
      serviceAccount: 'waypoint',
      services: { [`demo/${hostname}`]: { 15_008: 15_008 } },
    },
  });
  return found;
}

// spec: dataplane.md §8.5
test('traffic that went around a waypoint is refused, from a tunnel and in plaintext; through it, it comes', async (t) => {
  const { mesh, web, peer } = await guarded(t);
  await web.serve(8080, echo);
  const around = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const request = { authority: `${web.ip}:8080`, headers: {} };
  await t.throwsAsync(around.open(request), { message: /401/ });
  await closed(await peer.connect(web.ip, 8080));
  await closed(await peer.connect(web.ip6, 8080));
  const lines = await mesh.accessLines(3);
  for (const line of lines) t.regex(String(line['error']), /waypoint bypassed.*waypoint\.demo/);
  t.is(await mesh.metric('istio_tcp_connections_failed_total', { response_flags: 'DENY' }), 3);
  const through = await tunnelTo(t, mesh, { pod: peer, identity: WAYPOINT }, web.ip);
  t.is((await roundTrip(await through.open(request), 'through')).toString(), 'through');
  // A service without a waypoint of its own is another way to the pod.
  const viaService = { ...request, headers: { forwarded: `for="10.0.0.1:1";host=${HOSTNAME}` } };
  t.is((await roundTrip(await around.open(viaService), 'service')).toString(), 'service');
  setService(mesh, { waypoint: WAYPOINT_REFERENCE });
  await until(
    () =>
      around.open(viaService).then(
        () => false,
        (error: Error) => /401/.test(error.message),
      ),
    { what: 'the waypoint of the service' },
  );
});

test('WEFT_WAYPOINT_BYPASS=allow lets traffic go around', async (t) => {
  const { mesh, web, peer } = await guarded(t, { waypointBypass: 'allow' });
  await web.serve(8080, echo);
  const around = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  const stream = await around.open({ authority: `${web.ip}:8080`, headers: {} });
  t.is((await roundTrip(stream, 'around')).toString(), 'around');
  t.is(await mesh.metric('weft_waypoints_bypassed_total'), 1);
  const plain = await peer.connect(web.ip, 8080);
  t.is(await ask(plain, 'plain'), 'plain');
  t.is(await mesh.metric('weft_waypoints_bypassed_total'), 2);
  t.is(mesh.lines.filter(({ message }) => message === 'waypoint.bypassed').length, 1);
});

test('under WEFT_WAYPOINT_BYPASS=allow a waypoint that cannot be resolved locks nobody out', async (t) => {
  // The waypoint is unknown to the mesh.
  const { mesh, web, peer } = await ends(t, {
    settings: { waypointBypass: 'allow' },
    workload: { waypoint: WAYPOINT_REFERENCE },
  });
  await web.serve(8080, echo);
  t.is(await ask(await peer.connect(web.ip, 8080), 'absent'), 'absent');
  // The mesh cannot tell the policies of the pod.
  mesh.state.set(web.workload.uid, {
    kind: 'workload',
    workload: {
      ...web.workload,
      waypoint: {
        ...WAYPOINT_REFERENCE,
        destination: { ...WAYPOINT_REFERENCE.destination, hostname: 'other.demo' },
      },
    },
  });
  mesh.state.synced = false;
  t.is(await ask(await peer.connect(web.ip, 8080), 'unknown'), 'unknown');
});

test('a waypoint says who the client is, to policies, telemetry and application; nobody else may', async (t) => {
  const { mesh, web, peer } = await guarded(t, { waypointBypass: 'allow' });
  const client = await mesh.addPod('client', { enrolled: false });
  const seen: string[] = [];
  await web.serve(8080, (socket) => {
    seen.push((socket.remoteAddress ?? '').replace('::ffff:', ''));
    echo(socket);
  });
  await mesh.setPolicy('demo/only-client', {
    name: 'only-client',
    namespace: 'demo',
    scope: 'NAMESPACE',
    action: 'ALLOW',
    rules: [
      {
        clauses: [{ matches: [matchFixture({ sourceIps: [{ address: client.ip, length: 32 }] })] }],
      },
    ],
    dryRun: false,
  });
  const trusted = await tunnelTo(t, mesh, { pod: peer, identity: WAYPOINT }, web.ip);
  const request = (header: string) => ({
    authority: `${web.ip}:8080`,
    headers: { forwarded: header },
  });
  const said = `for="${client.ip}:4711"`;
  t.is((await roundTrip(await trusted.open(request(said)), 'x')).toString(), 'x');
  t.deepEqual(seen, [client.ip]);
  const [line] = await mesh.accessLines(1);
  t.is(line?.['src.addr'], `${client.ip}:4711`);
  t.is(line?.['src.workload'], 'client');
  t.is(line?.['src.identity'], WAYPOINT);
  // Elements before the waypoint's own are unverified claims.
  await t.throwsAsync(trusted.open(request(`${said}, for="10.5.5.5:1"`)), { message: /401/ });
  await t.throwsAsync(trusted.open(request('for=unknown')), { message: /401/ });
  for (const ip of ['127.0.0.1', '[::ffff:127.0.0.1]', web.ip, `[${web.ip6}]`, '169.254.7.127']) {
    await t.throwsAsync(trusted.open(request(`for="${ip}:1"`)), { message: /400/ }, ip);
  }
  const named = () =>
    mesh.access('connection failed').filter(({ error }) => /the waypoint names/.test(`${error}`));
  await until(() => named().length === 5, { what: 'a line for each' });
  t.is(seen.length, 1, 'and no application sees them');
  const stranger = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, web.ip);
  await t.throwsAsync(stranger.open(request(said)), { message: /401/ });
});

// spec: dataplane.md §8.1, spec: dataplane.md §8.3, spec: dataplane.md §8.4
test("plaintext to the proxy's own ports is refused early; refused by policy it gets no byte", async (t) => {
  const { mesh, web, peer } = await ends(t);
  for (const port of [15_001, 15_006]) {
    for (const ip of [web.ip, web.ip6]) await closed(await peer.connect(ip, port));
  }
  await until(() => mesh.access('connection failed').length === 4, { what: 'the early denials' });
  t.is(await mesh.metric('istio_tcp_connections_opened_total'), 0);
  let reached = 0;
  await web.serve(8080, () => {
    reached += 1;
  });
  await denyPort(mesh, 8080);
  const socket = await peer.connect(web.ip, 8080);
  socket.resume();
  const bytes: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => bytes.push(chunk));
  await once(socket, 'end').catch(() => {});
  t.is(bytes.length, 0);
  t.is(reached, 0);
});

// spec: dataplane.md §7.7
test('the proxy itself is served on 15008 alone, from its own address', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const own = await mesh.addPod('proxy', { own: true });
  const peer = await mesh.addPod('peer', { enrolled: false });
  const seen: string[] = [];
  await own.serve(15_020, (socket) => {
    seen.push((socket.remoteAddress ?? '').replace('::ffff:', ''));
    echo(socket);
  });
  for (const family of ['ip', 'ip6'] as const) {
    const tunnel = await tunnelTo(t, mesh, { pod: peer, identity: PEER }, own[family]);
    t.is(tunnel.peer.identity, 'spiffe://cluster.local/ns/demo/sa/proxy');
    const authority = family === 'ip' ? `${own.ip}:15020` : `[${own.ip6}]:15020`;
    const stream = await tunnel.open({ authority, headers: {} });
    t.is((await roundTrip(stream, 'scrape')).toString(), 'scrape');
  }
  t.deepEqual(seen, [own.ip, own.ip6]);
  for (const port of [15_001, 15_006]) {
    await t.throwsAsync(peer.connect(own.ip, port), { message: /ECONNREFUSED/ });
  }
});
