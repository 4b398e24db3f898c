import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { HIGH_WATER_BYTES, bidiCopy, socketEnd } from '../../lib/net/bidi-copy.ts';
import type { Copy } from '../../lib/net/bidi-copy.ts';
import { digest, pour, stall } from '../support/bulk.ts';
import { socketPair } from '../support/socket-pair.ts';
import { MIB, readAll, readToEnd } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

interface Joined {
  /** The application's sockets at both ends of the copy. */
  readonly client: Socket;
  readonly server: Socket;
  readonly copy: Copy;
  /** The copy's own socket towards the client. */
  readonly near: Socket;
  /** The copy's own socket towards the server. */
  readonly far: Socket;
}

async function joined(t: ExecutionContext): Promise<Joined> {
  const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
  const copy = bidiCopy(socketEnd(a.near), socketEnd(b.near));
  return { client: a.far, server: b.far, copy, near: a.near, far: b.near };
}

async function send(socket: Socket, sizes: readonly number[]): Promise<Buffer> {
  const chunks = sizes.map((size) => randomBytes(size));
  for (const chunk of chunks) if (!socket.write(chunk)) await once(socket, 'drain');
  socket.end();
  return Buffer.concat(chunks);
}

test('bytes of any chunking arrive intact both ways and are counted', async (t) => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 0, max: 200_000 }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 0, max: 200_000 }), { maxLength: 8 }),
      async (up, down) => {
        const { client, server, copy } = await joined(t);
        const [sentUp, sentDown, gotUp, gotDown] = await Promise.all([
          send(client, up),
          send(server, down),
          readAll(server),
          readAll(client),
        ]);
        t.true(gotUp.equals(sentUp));
        t.true(gotDown.equals(sentDown));
        t.is((await copy.done).error, null);
        t.deepEqual([copy.counts.fromA, copy.counts.fromB], [sentUp.length, sentDown.length]);
      },
    ),
    { numRuns: 25 },
  );
});

test('256 MiB pass each way at once with the same checksums', async (t) => {
  t.timeout(300_000);
  const { client, server, copy } = await joined(t);
  const [up, down, gotUp, gotDown] = await Promise.all([
    pour(client, 256),
    pour(server, 256),
    digest(server),
    digest(client),
  ]);
  t.is(gotUp, up);
  t.is(gotDown, down);
  await copy.done;
  t.is(copy.counts.fromA, 256 * MIB);
  t.is(copy.counts.fromB, 256 * MIB);
});

test('half-close passes and the other direction goes on', async (t) => {
  const { client, server, copy } = await joined(t);
  client.end('question');
  t.is((await readAll(server)).toString(), 'question');
  server.write('an ');
  server.end('answer');
  t.is((await readAll(client)).toString(), 'an answer');
  t.is((await copy.done).error, null);
});

test('a client that has ended its own side slowly reads all of a server that has gone', async (t) => {
  const { client, server, copy, near } = await joined(t);
  client.end('question');
  t.is((await readAll(server)).toString(), 'question');
  const block = randomBytes(65_536);
  let sent = 0;
  // Send until the kernel takes no more and the copy holds the rest.
  while (near.writableLength === 0) {
    server.write(block);
    sent += block.length;
    await until(() => copy.counts.fromB === sent, { timeoutMs: 10_000, what: 'the block read' });
  }
  const gone = once(server, 'close');
  server.end();
  await gone;
  await until(() => near.writableEnded, { timeoutMs: 10_000, what: 'the end passed on' });
  t.is((await readAll(client)).length, sent);
  t.is((await copy.done).error, null);
});

test('an answer that waits in the kernel when a write to its server fails reaches the client', async (t) => {
  const { client, server, copy, far } = await joined(t);
  // As while the client takes no more.
  far.pause();
  server.write('early answer');
  server.destroy();
  await once(server, 'close');
  // The kernel answers the first write by a reset, and refuses the second.
  for (const sent of [1, 2]) {
    client.write('x');
    await until(() => copy.counts.fromA === sent, { what: 'the byte to be taken in' });
  }
  const { bytes, end } = await readToEnd(client);
  t.deepEqual([bytes.toString(), end], ['early answer', 'clean']);
  t.is((await copy.done).error, null);
});

test('the server may speak first', async (t) => {
  const { client, server } = await joined(t);
  server.write('220 ready');
  const [line] = (await once(client, 'data')) as [Buffer];
  t.is(line.toString(), '220 ready');
});

test('a stalled reader stops the sender and nothing piles up', async (t) => {
  const { client, server, copy } = await joined(t);
  server.pause();
  const sent = await stall(client, { limit: 256 * MIB });
  // The copy holds the bytes that it read and that its sink's kernel buffers did not take.
  t.true(sent < 64 * MIB, `${sent} bytes were taken in`);
  const before = copy.counts.fromA;
  t.true(before > HIGH_WATER_BYTES);
  client.end();
  t.is((await readAll(server)).length, sent);
  server.end();
  await copy.done;
});

test('a reset of the client reaches the server as one, after what was passed on before', async (t) => {
  const { client, server, copy } = await joined(t);
  client.write('last words');
  await until(() => copy.counts.fromA === 10, { what: 'the bytes to be taken in' });
  client.resetAndDestroy();
  const { bytes, end } = await readToEnd(server);
  t.is(end, 'reset');
  t.is(bytes.toString(), 'last words');
  t.is((await copy.done).error, null);
});

test('a client that is reset after its last word has said all of it, and is answered no more', async (t) => {
  const { client, server, copy } = await joined(t);
  client.end('question');
  t.is((await readAll(server)).toString(), 'question');
  client.resetAndDestroy();
  const sent = stall(server);
  t.is((await copy.done).error, null);
  server.destroy();
  await sent;
});

test('an abort resets both ends', async (t) => {
  const { client, server, copy } = await joined(t);
  const heard = Promise.all([readToEnd(client), readToEnd(server)]);
  copy.abort();
  t.deepEqual(
    (await heard).map(({ end }) => end),
    ['reset', 'reset'],
  );
  t.is((await copy.done).error, null);
});
