/** Tests that a pod with bulk traffic slows only itself; its neighbour on the same thread goes on. */
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { stall } from '../support/bulk.ts';
import { TestMesh, listenerSettings } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, echo } from '../support/tcp-talk.ts';
import { KIB, MIB, readAll } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const BULK_CONNECTIONS = 8;
const REQUESTS = 200;
const CHUNK = Buffer.alloc(64 * 1024, 7);

const STALLED = 10;

/** Sends as fast as possible until the socket closes. Returns a count of the bytes sent. */
function flood(socket: Socket): () => number {
  socket.on('error', () => undefined);
  const source = new Readable({
    read() {
      this.push(CHUNK);
    },
  });
  source.pipe(socket);
  return () => socket.bytesWritten - socket.writableLength;
}

// spec: dataplane.md §10
test('small requests of a pod go on beside the bulk of another, on one thread and one tunnel peer', async (t) => {
  const mesh = await TestMesh.start(t, { threads: 1 });
  const noisy = await mesh.addPod('noisy');
  const quiet = await mesh.addPod('quiet');
  const web = await mesh.addPod('web');
  const received: number[] = [];
  await web.serve(9000, (socket) => {
    const index = received.push(0) - 1;
    socket.on('error', () => undefined);
    socket.on('data', (chunk: Buffer) => {
      received[index] = (received[index] ?? 0) + chunk.length;
    });
  });
  await web.serve(8080, echo);
  const bulk = await Promise.all(
    Array.from({ length: BULK_CONNECTIONS }, () => noisy.connect(web.ip, 9000)),
  );
  t.teardown(() => bulk.forEach((socket) => socket.destroy()));
  const sent = bulk.map(flood);
  const total = (): number => received.reduce((sum, bytes) => sum + bytes, 0);
  await until(() => total() > 64 * MIB, { what: 'the bulk to run', timeoutMs: 30_000 });
  const before = total();
  for (let index = 0; index < REQUESTS; index += 1) {
    const text = `request ${index}`;
    t.is(await ask(await quiet.connect(web.ip, 8080), text), text);
  }
  // The bulk went on meanwhile on every connection, and no connection was cut.
  t.true(total() > before);
  t.true(bulk.every((socket) => !socket.destroyed));
  t.true(received.every((bytes) => bytes > 0));
  // Buffers hold the bytes that are sent and not received: a bounded amount.
  const held = sent.reduce((sum, bytes) => sum + bytes(), 0) - total();
  t.true(held < 512 * MIB, `${held} bytes are under way`);
});

// docs/decisions/budgets.md
test('applications that do not read cost their pods memory up to a limit, and nobody his connection', async (t) => {
  const bytesPerPod = MIB;
  const limits = {
    connections: null,
    handshakes: 4_000,
    bytes: 64 * MIB,
    bytesPerPod,
    connectionsPerPod: null,
  };
  const mesh = await TestMesh.start(t, { threads: 1, limits });
  const client = await mesh.addPod('client');
  const web = await mesh.addPod('web');
  const [quiet, other] = [await mesh.addPod('quiet'), await mesh.addPod('other')];
  const unread: Socket[] = [];
  await web.serve(9000, (socket) => {
    socket.pause();
    unread.push(socket);
  });
  await web.serve(8080, echo);
  await other.serve(8080, echo);
  const senders = await Promise.all(
    Array.from({ length: STALLED }, () => client.connect(web.ip, 9000)),
  );
  t.teardown(() => [...senders, ...unread].forEach((socket) => socket.destroy()));
  const sent = senders.map(() => 0);
  const held = (): Promise<number> => mesh.metric('weft_listener_held_bytes');
  // A thread that was delayed takes more once it runs again.
  await until(
    async () => {
      const goes = await Promise.all(senders.map((socket) => stall(socket, { timeoutMs: 60_000 })));
      for (const [index, bytes] of goes.entries()) sent[index] = (sent[index] ?? 0) + bytes;
      return (
        (await mesh.metric('weft_listener_pressures_total')) >= 1 &&
        (await mesh.metric('weft_listener_pressed_pods')) >= 1
      );
    },
    { what: 'a pod to be pressed' },
  );
  // Both ends are pods of this thread: their limits, the bytes in flight when the pressure began, and a read of each.
  const bound = 2 * bytesPerPod + listenerSettings.http2.connectionWindow + 2 * STALLED * 192 * KIB;
  t.true((await held()) <= bound, `${await held()} bytes are held`);
  // The other connections of a pod under pressure go on over the same tunnel, and its neighbours are not affected.
  const text = 'x'.repeat(100 * KIB);
  t.is(await ask(await client.connect(web.ip, 8080), text), text);
  t.is(await ask(await quiet.connect(other.ip, 8080), text), text);
  const received = unread.map(async (socket) => (await readAll(socket)).length);
  for (const socket of senders) socket.end();
  const total = (all: number[]): number => all.reduce((sum, bytes) => sum + bytes, 0);
  t.is(total(await Promise.all(received)), total(sent));
  for (const socket of unread) socket.end();
  await until(async () => (await held()) === 0, { what: 'nothing to be held any more' });
  await until(async () => (await mesh.metric('weft_listener_pressed_pods')) === 0, {
    what: 'the pods to be eased',
  });
});
