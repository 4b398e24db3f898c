import { once } from 'node:events';
import type { Socket } from 'node:net';
import { startDnsMesh } from '../support/dns-mesh.ts';
import type { DnsMesh } from '../support/dns-mesh.ts';
import { listenerSettings } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { readAll, readSocketToEnd } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';
import { service } from '../support/workloads.ts';

const PORTS = { ...listenerSettings.ports, socks5: 15_080 };
const BODY = 'HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello';

interface SocksMesh extends DnsMesh {
  readonly web: TestPod;
}

async function start(
  t: Parameters<typeof startDnsMesh>[0],
  settings: NonNullable<Parameters<typeof startDnsMesh>[1]>['settings'] = {},
): Promise<SocksMesh> {
  const started = await startDnsMesh(t, { settings: { ports: PORTS, ...settings } });
  const { mesh } = started;
  const web = await mesh.addPod('web', {
    workload: { services: { 'demo/web.demo.svc.cluster.local': { 80: 8080 } } },
  });
  mesh.state.set('demo/web.demo.svc.cluster.local', {
    kind: 'service',
    service: service({ addresses: [{ network: '', ip: '10.96.0.10', length: null }] }),
  });
  await web.serve(8080, (socket) => {
    socket.once('data', () => socket.end(BODY));
  });
  return { ...started, web };
}

function curl(pod: TestPod, proxy: string, url: string): Promise<string> {
  return pod.netns.exec('curl', '-sS', '-m', '60', proxy, '127.0.0.1:15080', url);
}

/** Sends the greeting and the request, and returns all received bytes. */
async function ask(socket: Socket, request: Buffer): Promise<Buffer> {
  socket.write(Buffer.concat([Buffer.of(5, 1, 0), request]));
  return readAll(socket);
}

test('curl reaches a service by name and by address, over a tunnel of its own pool (spec: dataplane.md §12)', async (t) => {
  const { mesh, pod, upstream } = await start(t);
  t.is(await curl(pod, '--socks5-hostname', 'http://web.demo/'), 'hello');
  t.is(await curl(pod, '--socks5', 'http://10.96.0.10/'), 'hello');
  t.is(upstream.asked.length, 0);
  const lines = (await mesh.accessLines(4)).filter(({ direction }) => direction === 'outbound');
  t.is(lines.length, 2);
  for (const line of lines) {
    t.like(line, { 'dst.service': 'web.demo.svc.cluster.local', 'src.workload': 'client' });
    t.truthy(line['dst.hbone_addr']);
  }
  // Both used one tunnel; another connection, captured on 15001, makes one in the other pool.
  t.is(await mesh.metric('weft_hbone_tunnels_open'), 1);
  await pod.netns.exec('curl', '-sS', '-m', '60', 'http://10.96.0.10/');
  t.is(await mesh.metric('weft_hbone_tunnels_open'), 2);
});

test('names outside the mesh are asked of the name servers, bytes sent early are carried (spec: dataplane.md §12)', async (t) => {
  const { mesh, pod, upstream } = await start(t);
  const outside = await mesh.addPod('outside', { enrolled: false, known: false });
  await outside.serve(9_000, (socket) => socket.pipe(socket));
  upstream.answer = ({ message }) => addressAnswer(message, outside.ip);
  const socket = await pod.connect('127.0.0.1', 15_080);
  const name = Buffer.from('echo.example.com');
  socket.end(
    Buffer.concat([
      Buffer.of(5, 1, 0, 5, 1, 0, 3, name.length),
      name,
      Buffer.of(0x23, 0x28),
      Buffer.from('early bytes'),
    ]),
  );
  const heard = await readAll(socket);
  t.deepEqual(heard.subarray(0, 12), Buffer.from('050005000001000000000000', 'hex'));
  t.is(heard.toString('latin1', 12), 'early bytes');
  t.is(upstream.asked[0]?.from, pod.ip);
});

test('what cannot be served is refused with its code, and the connection ends (spec: dataplane.md §12)', async (t) => {
  const { mesh, pod, upstream } = await start(t);
  upstream.answer = ({ message }) => {
    const answer = Buffer.from(message);
    answer.writeUInt16BE(0x8183, 2);
    return answer;
  };
  const refusal = (code: number): Buffer => Buffer.of(5, code, 0, 1, 0, 0, 0, 0, 0, 0);
  const reply = async (request: Buffer): Promise<Buffer> =>
    (await ask(await pod.connect('127.0.0.1', 15_080), request)).subarray(2);
  const missing = Buffer.from('missing.example.com');
  t.deepEqual(
    await reply(Buffer.concat([Buffer.of(5, 1, 0, 3, missing.length), missing, Buffer.of(0, 80)])),
    refusal(4),
  );
  t.deepEqual(await reply(Buffer.of(5, 2, 0, 1, 10, 0, 0, 1, 0, 80)), refusal(7));
  const socket = await pod.connect('127.0.0.1', 15_080);
  socket.write(Buffer.of(5, 1, 2));
  t.deepEqual(await readAll(socket), refusal(7));
  await until(() => mesh.access('connection failed').length === 3, { what: 'three denials' });
});

test("the proxy's own port cannot be asked for, nor without the DNS proxy a name (spec: dataplane.md §12)", async (t) => {
  const { pod } = await start(t, { dns: null });
  const own = await pod.connect('127.0.0.1', 15_080);
  own.write(Buffer.of(5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1, 0x3a, 0xe8));
  const granted = await readSocketToEnd(own);
  t.is(granted.bytes.length, 12);
  t.is(granted.end, 'reset');
  const byName = await pod.connect('127.0.0.1', 15_080);
  const heard = await ask(
    byName,
    Buffer.concat([Buffer.of(5, 1, 0, 3, 3), Buffer.from('web'), Buffer.of(0, 80)]),
  );
  t.is(heard[3], 7);
});

test('a client that resets in the middle leaves nothing behind', async (t) => {
  const { mesh, pod } = await start(t);
  for (const bytes of [[5], [5, 1, 0], [5, 1, 0, 5, 1, 0, 1, 10]]) {
    const socket = await pod.connect('127.0.0.1', 15_080);
    socket.write(Buffer.from(bytes));
    if (bytes.length > 2) {
      socket.resume();
      await once(socket, 'data');
    }
    socket.resetAndDestroy();
  }
  await until(
    async () => (await mesh.metric('istio_tcp_sockets_open', { reporter: 'source' })) === 0,
    {
      what: 'all sockets closed',
    },
  );
  t.is(await curl(pod, '--socks5-hostname', 'http://web.demo/'), 'hello');
});

function addressAnswer(message: Buffer, ip: string): Buffer {
  const record = Buffer.from('c00c000100010000003c0004', 'hex');
  const answer = Buffer.concat([message, record, Buffer.from(ip.split('.').map(Number))]);
  answer.writeUInt16BE(0x8180, 2);
  answer.writeUInt16BE(1, 6);
  return answer;
}
