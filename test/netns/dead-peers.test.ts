/** Tests peers that fall silent because their host or the link to it has failed. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { ExecutionContext } from 'ava';
import type { ListenerSettings } from '../../workers/listener/protocol/settings.ts';
import { TestMesh, listenerSettings } from '../support/listener-kit.ts';
import type { TestPod } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { readAll } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const run = promisify(execFile);
const HOUR_MS = 3_600_000;

/** Cuts all traffic to and from the pod; its sockets stay open. */
async function cutOff(pod: TestPod): Promise<void> {
  // The test holds the namespace only by its descriptor.
  const path = `--net=/proc/${process.pid}/fd/${pod.netnsFd}`;
  await run('nsenter', [path, 'ip', 'link', 'set', 'eth0', 'down']);
}

async function meshOfTwo(t: ExecutionContext, changed: Partial<ListenerSettings>) {
  const mesh = await TestMesh.start(t, { threads: 2, ...changed });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web', { thread: 1 });
  await web.serve(8080, (socket) => socket.pipe(socket));
  const socket = await client.connect(web.ip, 8080);
  socket.on('error', () => undefined);
  socket.write('x');
  await new Promise((resolve) => socket.once('data', resolve).resume());
  return { mesh, client, web, socket };
}

const noPings = { ...listenerSettings.http2, pingIntervalMs: HOUR_MS, pingTimeoutMs: HOUR_MS };

test('an idle tunnel to a dead peer is found by PING, and its connections end', async (t) => {
  const http2 = { ...listenerSettings.http2, pingIntervalMs: 500, pingTimeoutMs: 3_000 };
  const changed = { http2, tunnelUserTimeoutMs: HOUR_MS };
  const { mesh, web, socket } = await meshOfTwo(t, changed);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.once('end', () => socket.end());
  await cutOff(web);
  await closed;
  await until(async () => (await mesh.connections()).length === 0, {
    what: 'both ends to give the connection up',
    timeoutMs: 30_000,
  });
  t.is(await mesh.metric('weft_hbone_tunnels_open'), 0);
});

test('a busy tunnel to a dead peer is found by TCP alone', async (t) => {
  const { mesh, web, socket } = await meshOfTwo(t, { http2: noPings, tunnelUserTimeoutMs: 2_000 });
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.once('end', () => socket.end());
  await cutOff(web);
  socket.write('anything that is not acknowledged');
  await closed;
  const outbound = async (): Promise<number> =>
    (await mesh.connections()).filter(({ direction }) => direction === 'outbound').length;
  await until(async () => (await outbound()) === 0, { what: 'the connection to be given up' });
  t.is(await mesh.metric('weft_hbone_tunnels_open'), 0);
});

test('an application that stops reading for longer than that is not taken for a dead peer', async (t) => {
  const { client, web, mesh } = await meshOfTwo(t, { http2: noPings, tunnelUserTimeoutMs: 1_000 });
  const size = 24 * 1_048_576;
  let go = (): void => {};
  const reading = new Promise<void>((resolve) => {
    go = resolve;
  });
  const received: Promise<number>[] = [];
  await web.serve(9090, (socket) => {
    socket.pause();
    received.push(
      reading.then(async () => {
        const bytes = await readAll(socket);
        socket.end();
        return bytes.length;
      }),
    );
  });
  const socket = await client.connect(web.ip, 9090);
  socket.end(Buffer.alloc(size));
  const bytesOf = async (): Promise<number> =>
    Math.max(0, ...(await mesh.connections()).map((record) => record.bytesSent));
  let last = -1;
  // Wait longer than the user timeout without a byte of progress.
  let stillSince = performance.now();
  await until(
    async () => {
      const now = await bytesOf();
      if (now !== last) stillSince = performance.now();
      last = now;
      return now > 0 && performance.now() - stillSince > 3_000;
    },
    { what: 'the transfer to stall', timeoutMs: 60_000 },
  );
  go();
  await until(() => received.length === 1, { what: 'the reader' });
  t.is(await received[0], size);
});
