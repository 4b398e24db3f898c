import type { Socket } from 'node:net';
import { MAX_PENDING_HANDSHAKES_PER_SOURCE } from '../../workers/listener/limits.ts';
import { TestMesh } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { readAll } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

function echo(socket: Socket): void {
  socket.pipe(socket);
}

async function ask(socket: Socket, text: string): Promise<string> {
  socket.end(text);
  return (await readAll(socket)).toString();
}

test('a client that dials the listener itself is refused, also at an address the mesh does not know', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const half = await mesh.addPod('half', { workload: { addresses: ['10.9.0.200'] } });
  for (const [pod, ip] of [
    [client, client.ip],
    [half, half.ip],
    [half, half.ip6],
  ] as const) {
    const socket = await pod.connect(ip, 15_001);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    // Refused with bytes unread, the connection may end with a reset.
    socket.on('error', () => undefined);
    socket.resume().end('x');
    await closed;
  }
  const refusals = await until(
    () => {
      const lines = mesh.access('connection failed');
      return lines.length >= 3 ? lines : null;
    },
    { what: 'the refusals to be logged' },
  );
  t.true(refusals.every((line) => String(line['error']).includes("port 15001 is the proxy's own")));
  t.is((await mesh.connections()).length, 0);
});

test('silent connections of one client hold up nobody else', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const silent = await mesh.addPod('silent', { enrolled: false });
  await web.serve(8080, echo);
  const sockets: Socket[] = [];
  const surplus = 20;
  for (let n = 0; n < MAX_PENDING_HANDSHAKES_PER_SOURCE + surplus; n += 1) {
    sockets.push(await silent.connect(web.ip, 15_008));
  }
  const refused = (): Promise<number> =>
    mesh.metric('weft_listener_early_denials_total', { reason: 'peer-handshake-limit' });
  await until(async () => (await refused()) >= surplus, { what: 'the surplus to be refused' });
  t.is(await refused(), surplus);
  t.is(await ask(await client.connect(web.ip, 8080), 'hello'), 'hello');
  for (const socket of sockets) socket.destroy();
});
