/** A connect whose peer takes the connection and is gone before we look. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { bidiCopy } from '../../lib/net/bidi-copy.ts';
import { connectTcp } from '../../lib/net/socket.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { socketPair } from '../support/socket-pair.ts';
import { readAll } from '../support/tunnel-kit.ts';

const TIMEOUT = { timeoutMs: 10_000 };

interface Resetter {
  readonly port: number;
  /** How many it has taken and reset. */
  readonly count: Int32Array<SharedArrayBuffer>;
}

/** A server on a thread of its own that resets every connection as soon as it has it. */
async function resetter(t: ExecutionContext): Promise<Resetter> {
  const memory = new SharedArrayBuffer(4);
  const worker = new Worker(
    `const { createServer } = require('node:net');
     const { parentPort, workerData } = require('node:worker_threads');
     const count = new Int32Array(workerData);
     const server = createServer((socket) => {
       socket.once('close', () => { Atomics.add(count, 0, 1); Atomics.notify(count, 0); });
       socket.resetAndDestroy();
     });
     server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port));`,
    { eval: true, workerData: memory },
  );
  t.teardown(() => worker.terminate());
  const [port] = (await once(worker, 'message')) as [number];
  return { port, count: new Int32Array(memory) };
}

function plainSocket(): number {
  return openTcp({ netnsFd: null, family: 4, mark: 0, noDelay: true });
}

/** Connects, and looks at the outcome only when the server has taken the connection and reset it. */
function connectLate({ port, count }: Resetter): ReturnType<typeof connectTcp> {
  const connecting = connectTcp(plainSocket(), { ip: '127.0.0.1', port }, TIMEOUT);
  // Behind the tick in which the system is asked to connect.
  process.nextTick(() => Atomics.wait(count, 0, 0, 10_000));
  return connecting;
}

test('a connection that was made and reset before we looked was made', async (t) => {
  const server = await resetter(t);
  const socket = await connectLate(server);
  t.true(socket.destroyed);
  t.is(Atomics.load(server.count, 0), 1);
});

test('what is joined to it ends in order', async (t) => {
  const server = await resetter(t);
  const upstream = await connectLate(server);
  const { near, far } = await socketPair(t);
  const copy = bidiCopy(
    { duplex: near, smallReads: false, abort: () => near.destroy() },
    { duplex: upstream, smallReads: false, abort: () => upstream.destroy() },
  );
  const said = readAll(far);
  far.end('nobody hears this');
  t.is((await said).toString(), '');
  t.deepEqual(await copy.done, { error: null });
  t.is(Atomics.load(server.count, 0), 1);
});

test('one that was refused was not made', async (t) => {
  const closed = createServer();
  closed.listen(0, '127.0.0.1');
  await once(closed, 'listening');
  const { port } = closed.address() as AddressInfo;
  closed.close();
  await once(closed, 'close');
  await t.throwsAsync(connectTcp(plainSocket(), { ip: '127.0.0.1', port }, TIMEOUT), {
    code: 'UPSTREAM_CONNECT',
    message: /ECONNREFUSED/,
  });
});
