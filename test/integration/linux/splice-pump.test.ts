import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, openSync, readdirSync, readlinkSync } from 'node:fs';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import * as fc from 'fast-check';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import {
  abortSplice,
  countSplice,
  limitPump,
  pumpStats,
  splicePump,
} from '../../../lib/linux/splice-pump.ts';
import type { Copy } from '../../../lib/net/bidi-copy.ts';
import { spliceSockets } from '../../../lib/net/splice-sockets.ts';
import { socketFd } from '../../../lib/net/socket.ts';
import { RawSocket } from '../../../lib/net/raw-socket.ts';
import { digest, pour, stall } from '../../support/bulk.ts';
import { socketPair } from '../../support/socket-pair.ts';
import type { SocketPair } from '../../support/socket-pair.ts';
import { MIB, readAll, readSocketToEnd, readToEnd } from '../../support/tunnel-kit.ts';
import { until } from '../../support/until.ts';

/** Blocks of 1 MiB sent each way. */
const BLOCKS = 512;
/** More descriptors than the start of a program needs: three streams with two ends each, and the pipe for exec's result. */
const SPAWN_DESCRIPTORS = 16;
const LIMITS = { maxPipes: 256, pipeBytes: 1_048_576 };

interface Joined {
  readonly client: Socket;
  readonly server: Socket;
  readonly copy: Copy;
}

async function joined(t: ExecutionContext): Promise<Joined> {
  const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
  const copy = spliceSockets(new RawSocket(a.near), new RawSocket(b.near));
  t.teardown(() => copy.abort());
  t.true(a.near.destroyed, 'the socket has left JavaScript');
  return { client: a.far, server: b.far, copy };
}

async function send(socket: Socket, sizes: readonly number[]): Promise<Buffer> {
  const chunks = sizes.map((size) => randomBytes(size));
  for (const chunk of chunks) if (!socket.write(chunk)) await once(socket, 'drain');
  socket.end();
  return Buffer.concat(chunks);
}

/** Sends a byte of urgent data (MSG_OOB), which Node cannot. */
async function sendUrgent(socket: Socket): Promise<void> {
  const script = 'open(my $socket, "+<&=", 3) or die; send($socket, "!", 1) == 1 or die';
  const fd = present(socketFd(socket), 'an open socket has a descriptor');
  const child = spawn('perl', ['-e', script], { stdio: ['ignore', 'ignore', 'inherit', fd] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error(`perl ended with ${code}`);
}

/** Returns the soft limit of descriptors of this process. */
function softLimit(): string {
  const of = ['--pid', String(process.pid), '--nofile', '--noheadings', '-o', 'SOFT'];
  return execFileSync('prlimit', of, { encoding: 'utf8' }).trim();
}

function limitTo(soft: string): void {
  execFileSync('prlimit', ['--pid', String(process.pid), `--nofile=${soft}:`]);
}

/** Counts the open descriptors that are sockets or pipes. */
function descriptors(): { sockets: number; pipes: number } {
  const counts = { sockets: 0, pipes: 0 };
  for (const name of readdirSync('/proc/self/fd')) {
    let target = '';
    try {
      target = readlinkSync(`/proc/self/fd/${name}`);
    } catch {
      continue; // the directory's own
    }
    if (target.startsWith('socket:')) counts.sockets += 1;
    if (target.startsWith('pipe:')) counts.pipes += 1;
  }
  return counts;
}

function idle(): Promise<unknown> {
  return until(() => pumpStats().joins === 0 && pumpStats().pipesHeld === 0, {
    what: 'the pump to have nothing left',
  });
}

test.serial(
  'spec: dataplane.md §10 bytes of any chunking arrive intact and are counted',
  async (t) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 8 }),
        fc.array(fc.integer({ min: 0, max: 300_000 }), { maxLength: 8 }),
        fc.integer({ min: 0, max: 2 }),
        async (up, down, maxPipes) => {
          limitPump({ ...LIMITS, maxPipes });
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
          t.is(copy.counts.fromA, sentUp.length);
          t.is(copy.counts.fromB, sentDown.length);
        },
      ),
      { numRuns: 40 },
    );
    limitPump(LIMITS);
  },
);

test.serial('1 GiB passes, half of it each way at once, with the same checksum', async (t) => {
  t.timeout(300_000);
  const { client, server, copy } = await joined(t);
  const before = pumpStats().copiedBytes;
  const [up, gotUp, down, gotDown] = await Promise.all([
    pour(client, BLOCKS),
    digest(server),
    pour(server, BLOCKS),
    digest(client),
  ]);
  t.is(gotUp, up);
  t.is(gotDown, down);
  await copy.done;
  t.is(copy.counts.fromA, BLOCKS * MIB);
  t.is(copy.counts.fromB, BLOCKS * MIB);
  t.is(pumpStats().copiedBytes, before, 'none of it through user space');
});

test.serial(
  'spec: dataplane.md §10 half-close passes either way and the other direction goes on',
  async (t) => {
    for (const turned of [false, true]) {
      const pair = await joined(t);
      const [asker, answerer] = turned ? [pair.server, pair.client] : [pair.client, pair.server];
      asker.end('question');
      t.is((await readAll(answerer)).toString(), 'question');
      answerer.write('an ');
      answerer.end('answer');
      t.is((await readAll(asker)).toString(), 'an answer');
      t.is((await pair.copy.done).error, null);
    }
  },
);

test.serial(
  'the server may speak first, and counts can be read from the first byte on',
  async (t) => {
    const { client, server, copy } = await joined(t);
    server.write('220 ready');
    const [line] = (await once(client, 'data')) as [Buffer];
    t.is(line.toString(), '220 ready');
    const { firstFromBMs, ...bytes } = copy.counts;
    t.deepEqual(bytes, { fromA: 0, fromB: 9 });
    t.true(firstFromBMs !== undefined && firstFromBMs <= performance.now());
  },
);

test.serial('urgent data ends nothing: all bytes around it pass', async (t) => {
  const { client, server, copy } = await joined(t);
  client.write('before ');
  await until(() => copy.counts.fromA === 7, { what: 'the bytes before it' });
  await sendUrgent(client);
  client.write('between ');
  await until(() => copy.counts.fromA === 15, { what: 'the bytes behind it' });
  await sendUrgent(client);
  client.end('last');
  t.is((await readAll(server)).toString(), 'before between last');
  server.end('answer');
  t.is((await readAll(client)).toString(), 'answer');
  t.is((await copy.done).error, null);
});

test.serial(
  'spec: dataplane.md §10 a reset of either side resets the other, which has what was passed on before',
  async (t) => {
    for (const turned of [false, true]) {
      const pair = await joined(t);
      const [gone, left] = turned ? [pair.server, pair.client] : [pair.client, pair.server];
      gone.write('last words');
      await until(() => pair.copy.counts.fromA + pair.copy.counts.fromB === 10, {
        what: 'the bytes to be passed on',
      });
      gone.resetAndDestroy();
      const { bytes, end } = await readToEnd(left);
      t.is(end, 'reset');
      t.is(bytes.toString(), 'last words');
      t.is((await pair.copy.done).error, null);
    }
  },
);

test.serial(
  'spec: dataplane.md §10 bytes that arrive together with a reset reach the other side before it',
  async (t) => {
    t.teardown(() => limitPump(LIMITS));
    for (const maxPipes of [LIMITS.maxPipes, 0]) {
      limitPump({ ...LIMITS, maxPipes });
      const bulk = await joined(t);
      bulk.server.resume();
      const pairs = await Promise.all(Array.from({ length: 64 }, () => joined(t)));
      const ends = pairs.map((pair, index) => {
        const [gone, left] = index % 2 ? [pair.server, pair.client] : [pair.client, pair.server];
        return { gone, heard: readSocketToEnd(left), last: randomBytes(1_000) };
      });
      // The pump is busy with these bytes, so that it sees the bytes of the others and their resets at once.
      bulk.client.write(Buffer.alloc(16 * MIB));
      for (const { gone, last } of ends) {
        gone.write(last);
        gone.resetAndDestroy();
      }
      for (const { heard, last } of ends) {
        const { bytes, end } = await heard;
        t.is(end, 'reset');
        t.true(bytes.equals(last), `${bytes.length} of ${last.length} bytes`);
      }
      for (const { copy } of pairs) {
        t.is((await copy.done).error, null);
        t.is(copy.counts.fromA + copy.counts.fromB, 1_000);
      }
      bulk.copy.abort();
      await bulk.copy.done;
    }
  },
);

test.serial(
  'a reset ends a connection whose other side keeps talking and never reads an end',
  async (t) => {
    const { client, server, copy } = await joined(t);
    client.end();
    await readAll(server);
    const sent = stall(server);
    await until(() => copy.counts.fromB > MIB, { what: 'the client to be sent to' });
    client.resetAndDestroy();
    await copy.done;
    server.destroy();
    await sent;
    t.is((await copy.done).error, null);
  },
);

test.serial(
  'a reset after the last word of a side is noticed although nobody reads it',
  async (t) => {
    const { client, server, copy } = await joined(t);
    client.end('bye');
    t.is((await readAll(server)).toString(), 'bye');
    client.resetAndDestroy();
    t.is((await copy.done).error, null);
  },
);

test.serial('an abort resets both ends, also of a direction that has stalled', async (t) => {
  const { client, server, copy } = await joined(t);
  await stall(client);
  await until(() => pumpStats().pipesHeld === 1, {
    what: 'a pipe for what the sink does not take',
  });
  const gone = new Promise((resolve) => client.once('close', resolve));
  copy.abort();
  t.is((await copy.done).error, null);
  await gone;
  const { bytes, end } = await readToEnd(server);
  t.is(end, 'reset');
  t.true(bytes.length < copy.counts.fromA, 'what was under way is dropped');
  await idle();
});

test.serial(
  'a splice can be counted and ended by its number alone, and not once it is over',
  async (t) => {
    const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
    const splice = splicePump(new RawSocket(a.near).take(), new RawSocket(b.near).take());
    a.far.write('four');
    await until(() => countSplice(splice.id)?.fromA === 4, { what: 'the count' });
    abortSplice(splice.id);
    t.is((await splice.done).error?.message, 'the peer cut the connection');
    t.is(countSplice(splice.id), null);
    t.is(splice.counts.fromA, 4);
    abortSplice(splice.id);
  },
);

test.serial(
  'first bytes go before anything the other side says, and are not counted',
  async (t) => {
    const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
    a.far.write('body');
    const toB = randomBytes(3 * MIB);
    const splice = splicePump(new RawSocket(a.near).take(), {
      ...new RawSocket(b.near).take(),
      first: toB,
    });
    a.far.end();
    b.far.end();
    const got = await readAll(b.far);
    t.true(got.subarray(0, toB.length).equals(toB));
    t.is(got.subarray(toB.length).toString(), 'body');
    await splice.done;
    t.is(splice.counts.fromA, 4);
  },
);

test.serial('2,000 idle connections hold no pipe, and every descriptor comes back', async (t) => {
  t.timeout(120_000);
  await idle();
  const before = descriptors();
  const all: Joined[] = [];
  while (all.length < 2_000) {
    all.push(...(await Promise.all(Array.from({ length: 50 }, () => joined(t)))));
  }
  await Promise.all(
    all.map(async ({ client, server }) => {
      const arrived = once(server, 'data');
      client.write('x');
      await arrived;
    }),
  );
  await until(() => pumpStats().pipesHeld === 0, { what: 'the pipes to be given back' });
  t.is(pumpStats().joins, 2_000);
  t.true(pumpStats().pipesOpen <= 8, `${pumpStats().pipesOpen} pipes are kept`);
  t.is(descriptors().sockets - before.sockets, 8_000);
  for (const { client, server } of all) {
    client.destroy();
    server.destroy();
  }
  await Promise.all(all.map(({ copy }) => copy.done));
  await until(() => descriptors().sockets <= before.sockets, { what: 'the sockets to be closed' });
  t.true(descriptors().pipes <= before.pipes + 16);
});

test.serial(
  'when every pipe holds what a stalled reader left, others go on without one',
  async (t) => {
    limitPump({ ...LIMITS, maxPipes: 2 });
    t.teardown(() => limitPump(LIMITS));
    const stalled = await Promise.all([joined(t), joined(t), joined(t)]);
    for (const { client } of stalled) await stall(client);
    await until(() => pumpStats().pipesHeld === 2, { what: 'both pipes to be held' });
    const copied = pumpStats().copiedBytes;
    const { client, server, copy } = await joined(t);
    const [sent, got] = await Promise.all([pour(client, 16), digest(server)]);
    t.is(got, sent);
    server.end();
    await copy.done;
    t.true(pumpStats().copiedBytes - copied >= 16 * MIB);
    const rest = await Promise.all(
      stalled.map((one) => {
        one.client.end();
        one.server.end();
        return readAll(one.server);
      }),
    );
    t.deepEqual(
      rest.map((bytes) => bytes.length),
      stalled.map((one) => one.copy.counts.fromA),
    );
    await idle();
  },
);

test.serial('a bulk transfer leaves many small ones their turn', async (t) => {
  const bulk = await joined(t);
  let bulkBytes = 0;
  bulk.server.on('data', (chunk: Buffer) => {
    bulkBytes += chunk.length;
  });
  const block = Buffer.alloc(4 * MIB);
  const pump = (): void => {
    while (bulk.client.write(block));
  };
  bulk.client.on('drain', pump);
  pump();
  const small = await Promise.all(Array.from({ length: 100 }, () => joined(t)));
  for (const { server } of small) server.pipe(server);
  const before = bulkBytes;
  for (let round = 0; round < 20; round += 1) {
    await Promise.all(
      small.map(async ({ client }) => {
        const back = once(client, 'data');
        client.write(`round ${round}`);
        t.is(String((await back)[0]), `round ${round}`);
      }),
    );
  }
  t.true(bulkBytes > before, 'and the bulk went on meanwhile');
  bulk.client.off('drain', pump);
  bulk.copy.abort();
  await bulk.copy.done;
});

test.serial(
  'a thread that is terminated takes its connections with it, and no others',
  async (t) => {
    const mine = await joined(t);
    const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
    const fds = { a: new RawSocket(a.near).take().fd, b: new RawSocket(b.near).take().fd };
    const worker = new Worker(join(import.meta.dirname, '../../support/splice.worker.ts'), {
      workerData: fds,
    });
    const [id] = (await once(worker, 'message')) as [number];
    const poured = stall(a.far);
    const heard = readToEnd(b.far);
    await until(() => (countSplice(id)?.fromA ?? 0) > MIB, { what: 'bytes to flow' });
    await worker.terminate();
    t.is((await heard).end, 'reset');
    await until(() => countSplice(id) === null, { what: 'the connection to be closed' });
    a.far.destroy();
    await poured;
    mine.client.end('still here');
    t.is((await readAll(mine.server)).toString(), 'still here');
  },
);

test.serial('what is no stream socket is refused and stays with its owner', async (t) => {
  const { near } = await socketPair(t);
  const end = new RawSocket(near).take();
  const error = t.throws(() => splicePump(end, { fd: 999_999 }), { instanceOf: MeshError });
  t.is(error.detail['errno'], 'EBADF');
  t.throws(() => new RawSocket(near).take(), { instanceOf: MeshError });
  const other = await socketPair(t);
  const splice = splicePump(end, new RawSocket(other.near).take());
  splice.abort();
  await splice.done;
});

test.serial(
  'what was read before goes first, and is counted; what waits to be written is not left behind',
  async (t) => {
    const [a, b] = await Promise.all([socketPair(t), socketPair(t)]);
    a.far.write('request body');
    // Like a negotiation that reads up to its end and puts the rest back.
    const said = once(a.near, 'data');
    a.near.resume();
    const [bytes] = (await said) as [Buffer];
    a.near.pause();
    a.near.unshift(bytes.subarray(8));
    a.far.write(' more');
    const copy = spliceSockets(new RawSocket(a.near), new RawSocket(b.near));
    t.true(a.near.destroyed);
    a.far.end(' later');
    b.far.end();
    t.is((await readAll(b.far)).toString(), 'body more later');
    await copy.done;
    t.is(copy.counts.fromA, 15);

    const [c, d] = await Promise.all([socketPair(t), socketPair(t)]);
    const written = Buffer.alloc(16 * MIB, 'w');
    c.near.write(written);
    const kept = spliceSockets(new RawSocket(c.near), new RawSocket(d.near));
    t.false(c.near.destroyed);
    d.far.end('!');
    c.far.end();
    t.is((await readAll(c.far)).length, written.length + 1);
    await kept.done;
  },
);

test.serial('out of descriptors, connections go on in JavaScript or without a pipe', async (t) => {
  await idle();
  const pairs = await Promise.all(Array.from({ length: 4 }, () => socketPair(t)));
  const [a, b, c, d] = pairs as [SocketPair, SocketPair, SocketPair, SocketPair];
  const before = softLimit();
  const fillers: number[] = [];
  const highest = Math.max(...readdirSync('/proc/self/fd').map(Number));
  // The limit is on descriptor numbers: fill the gaps below it, but keep enough for `prlimit` to start again.
  do fillers.push(openSync('/dev/null', 'r'));
  while ((fillers.at(-1) ?? 0) <= highest + SPAWN_DESCRIPTORS);
  limitTo(String((fillers.at(-1) ?? 0) + 1));
  let kept: Copy;
  let spliced: Copy;
  const copied = pumpStats().copiedBytes;
  limitPump({ ...LIMITS, maxPipes: 0 });
  try {
    kept = spliceSockets(new RawSocket(a.near), new RawSocket(b.near));
    t.false(a.near.destroyed, 'no descriptor for the kernel');
    for (const fd of fillers.slice(0, 2)) closeSync(fd);
    spliced = spliceSockets(new RawSocket(c.near), new RawSocket(d.near));
    t.true(c.near.destroyed);
  } finally {
    for (const fd of fillers.splice(2)) closeSync(fd);
    limitTo(before);
    limitPump(LIMITS);
  }
  for (const [near, far] of [
    [a.far, b.far],
    [c.far, d.far],
  ] as const) {
    near.end('all the same');
    t.is((await readAll(far)).toString(), 'all the same');
    far.end();
  }
  await Promise.all([kept.done, spliced.done]);
  t.true(pumpStats().copiedBytes >= copied);
});

test.serial('the last descriptors are not for pipes', async (t) => {
  await idle();
  const { client, server, copy } = await joined(t);
  // Each kept pipe is closed after its next use.
  limitPump({ ...LIMITS, maxPipes: 0 });
  while (pumpStats().pipesOpen > 0) {
    client.write('x');
    await once(server, 'data');
  }
  limitPump(LIMITS);
  const before = softLimit();
  const fillers: number[] = [];
  const highest = Math.max(...readdirSync('/proc/self/fd').map(Number));
  do fillers.push(openSync('/dev/null', 'r'));
  while ((fillers.at(-1) ?? 0) <= highest + SPAWN_DESCRIPTORS);
  // An eighth of the descriptors remains, but none may be used for a pipe.
  const copied = pumpStats().copiedBytes;
  limitTo(String(Math.ceil((((fillers.at(-1) ?? 0) + 1) * 8) / 7)));
  try {
    const [sent, got] = await Promise.all([pour(client, 4), digest(server)]);
    t.is(got, sent);
  } finally {
    for (const fd of fillers) closeSync(fd);
    limitTo(before);
  }
  t.true(pumpStats().copiedBytes - copied >= 4 * MIB);
  t.is(pumpStats().pipesOpen, 0);
  server.end();
  await copy.done;
});
