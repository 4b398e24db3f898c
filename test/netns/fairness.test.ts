/** A pod that moves all it can slows itself; its neighbour on the same thread goes on. */
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import { TestMesh } from '../support/listener-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { ask, echo } from '../support/tcp-talk.ts';
import { MIB } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const BULK_CONNECTIONS = 8;
const REQUESTS = 200;
const CHUNK = Buffer.alloc(64 * 1024, 7);

/** Sends as fast as it is let, until the socket closes; how much went out. */
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
  // The bulk went on meanwhile, on every connection, and nobody was cut.
  t.true(total() > before);
  t.true(bulk.every((socket) => !socket.destroyed));
  t.true(received.every((bytes) => bytes > 0));
  // What is sent and not received is what buffers hold: bounded, however much there is to send.
  const held = sent.reduce((sum, bytes) => sum + bytes(), 0) - total();
  t.true(held < 512 * MIB, `${held} bytes are under way`);
});
