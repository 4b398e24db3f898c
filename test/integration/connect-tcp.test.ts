/** Tests connects that succeed at once or late, are refused or given up, and a peer that accepts and leaves before we look. */
import { once } from 'node:events';
import { readlinkSync, stat } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { closeFd } from '../../lib/linux/netns.ts';
import { acceptQueued, connectSocket, listenTcp, openTcp } from '../../lib/linux/sockets.ts';
import { bidiCopy, socketEnd } from '../../lib/net/bidi-copy.ts';
import { connectTcp } from '../../lib/net/connect-tcp.ts';
import type { Attempt } from '../../lib/net/connect-tcp.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { socketPair } from '../support/socket-pair.ts';
import type { Farewell } from '../support/farewell.worker.ts';
import { readAll, readToEnd } from '../support/tunnel-kit.ts';
import { until } from '../support/until.ts';

const TIMEOUT = { timeoutMs: 60_000 };

/** A listener whose queue is full: the kernel drops further SYNs until a place is free. */
interface FullListener {
  readonly fd: number;
  readonly to: { readonly ip: string; readonly port: number };
  /** Closes the listener once; otherwise the end of the test does. */
  readonly close: () => void;
}

function fullListener(t: ExecutionContext): FullListener {
  const { fd, port } = listenTcp({
    netnsFd: null,
    address: '127.0.0.1',
    port: 0,
    mark: 0,
    reusePort: false,
    transparent: 'off',
    backlog: 0,
  });
  let open = true;
  const close = (): void => {
    if (open) closeFd(fd);
    open = false;
  };
  t.teardown(close);
  const to = { ip: '127.0.0.1', port };
  const first = plainSocket();
  t.teardown(() => closeFd(first));
  t.is(connectSocket(first, to.ip, to.port), 'connected');
  return { fd, to, close };
}

function plainSocket(): number {
  return openTcp({ netnsFd: null, family: 4, mark: 0, noDelay: true });
}

/** Accepts queued connections while the event loop is blocked. */
function acceptBlocking(t: ExecutionContext, listener: number): void {
  const sleeper = new Int32Array(new SharedArrayBuffer(4));
  for (let left = 2; left > 0;) {
    const [accepted] = acceptQueued(listener, false, 1);
    if (accepted === undefined) {
      Atomics.wait(sleeper, 0, 0, 5);
      continue;
    }
    left -= 1;
    const socket = new RawSocket(accepted[0]).adopt();
    t.teardown(() => socket.destroy());
  }
}

/**
 * Connects, and sees the outcome only after the peer has accepted and reset the connection, with an end before the reset if
 * `endsFirst`. The event loop is blocked meanwhile.
 */
function connectLate(t: ExecutionContext, endsFirst = false): Promise<Socket> {
  const { fd, to } = fullListener(t);
  const connecting = connectTcp(plainSocket(), to, TIMEOUT);
  const done = new Int32Array(new SharedArrayBuffer(4));
  const workerData: Farewell = { listener: fd, endsFirst, done };
  const peer = new Worker(new URL('../support/farewell.worker.ts', import.meta.url), {
    workerData,
  });
  t.teardown(async () => void (await peer.terminate()));
  Atomics.wait(done, 0, 0);
  return connecting;
}

/** Returns the socket behind a descriptor number, null for none. The number alone is soon reused. */
function socketUnder(fd: number): string | null {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return null;
  }
}

for (const [what, endsFirst] of [
  ['reset', false],
  ['ended and reset', true],
] as const) {
  test(`a connection that was made and ${what} before we looked was made`, async (t) => {
    const socket = await connectLate(t, endsFirst);
    t.true(socket.destroyed);
  });
}

test('what is joined to it is reset', async (t) => {
  const upstream = await connectLate(t);
  const { near, far } = await socketPair(t);
  const copy = bidiCopy(socketEnd(near), socketEnd(upstream));
  const said = readToEnd(far);
  far.end('nobody hears this');
  t.deepEqual(await said, { bytes: Buffer.alloc(0), end: 'reset' });
  t.deepEqual(await copy.done, { error: null });
});

test('one that was made while the thread was busy counts, though its time is over', async (t) => {
  const { fd: listener, to } = fullListener(t);
  const timeoutMs = 4_000;
  const end = performance.now() + timeoutMs + 500;
  const connecting = connectTcp(plainSocket(), to, { timeoutMs });
  // Timers are next after what has come: here nothing else of this thread runs until the time is over.
  await new Promise<void>((resolve) => {
    stat('/', () => {
      acceptBlocking(t, listener);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, end - performance.now());
      resolve();
    });
  });
  const socket = await connecting;
  t.teardown(() => socket.destroy());
  t.false(socket.destroyed);
});

for (const ip of ['127.0.0.1', '::1']) {
  test(`one that was refused was not made (${ip})`, async (t) => {
    const closed = createServer();
    closed.listen(0, ip);
    await once(closed, 'listening');
    const { port } = closed.address() as AddressInfo;
    closed.close();
    await once(closed, 'close');
    const family = ip.includes(':') ? 6 : 4;
    const fd = openTcp({ netnsFd: null, family, mark: 0, noDelay: true });
    const error = await t.throwsAsync(connectTcp(fd, { ip, port }, TIMEOUT), {
      code: 'UPSTREAM_CONNECT',
      message: new RegExp(`: connect ECONNREFUSED ${ip}:${port}$`),
    });
    t.like(error?.cause, { code: 'ECONNREFUSED', syscall: 'connect', address: ip, port });
  });
}

test('what the kernel refuses at once, and an address of the other family, are told by their errno', async (t) => {
  const to = { ip: '::1', port: 9 };
  await t.throwsAsync(connectTcp(plainSocket(), to, TIMEOUT), {
    code: 'UPSTREAM_CONNECT',
    message: /: connect EAFNOSUPPORT ::1:9$/,
  });
  // The broadcast address is not routable and cannot be a source.
  await t.throwsAsync(connectTcp(plainSocket(), { ip: '255.255.255.255', port: 9 }, TIMEOUT), {
    code: 'UPSTREAM_CONNECT',
    message: /: connect (?:ENETUNREACH|EACCES) /,
  });
});

test('a peer of this machine is connected before the loop turns, and what it says waits', async (t) => {
  const server = createServer((socket) => socket.end('hello'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  const { port } = server.address() as AddressInfo;
  const attempts: Attempt[] = [];
  const options = { ...TIMEOUT, onAttempt: (attempt: Attempt) => attempts.push(attempt) };
  const connecting = connectTcp(plainSocket(), { ip: '127.0.0.1', port }, options);
  let turned = false;
  setImmediate(() => (turned = true));
  const socket = await connecting;
  t.false(turned);
  t.is(attempts.length, 1);
  t.is(socket.remotePort, port);
  await wait(20);
  t.is(socket.readableLength, 0);
  const said = readAll(socket);
  t.is((await said).toString(), 'hello');
  // The socket is half-open: the peer's end does not end ours.
  t.true(socket.writable);
  socket.destroy();
});

test('one that is answered late is connected then, by one SYN that is repeated', async (t) => {
  const { fd, to } = fullListener(t);
  const connecting = connectTcp(plainSocket(), to, TIMEOUT);
  let early = true;
  setImmediate(() => (early = false));
  await until(() => !early, { what: 'a turn of the loop' });
  acceptBlocking(t, fd);
  const socket = await connecting;
  t.true(socket.writable);
  t.deepEqual(acceptQueued(fd, false, 1), []);
  socket.destroy();
  await once(socket, 'close');
});

test('one that is never answered ends with its time, given up at once; either way its descriptor is closed', async (t) => {
  const { to } = fullListener(t);
  const late = plainSocket();
  const lateIs = socketUnder(late);
  t.regex(lateIs ?? '', /^socket:/);
  await t.throwsAsync(connectTcp(late, to, { timeoutMs: 30 }), {
    code: 'UPSTREAM_TIMEOUT',
    message: `127.0.0.1:${to.port} did not accept the connection within 30 ms`,
  });
  t.not(socketUnder(late), lateIs);
  const given = plainSocket();
  const givenIs = socketUnder(given);
  let attempt: Attempt | null = null;
  const connecting = connectTcp(given, to, { ...TIMEOUT, onAttempt: (made) => (attempt = made) });
  (attempt as Attempt | null)?.destroy();
  (attempt as Attempt | null)?.destroy();
  t.not(socketUnder(given), givenIs);
  await t.throwsAsync(connecting, {
    code: 'UPSTREAM_CONNECT',
    message: /: the connection was given up$/,
  });
});

test('what is given up after it was connected late is closed', async (t) => {
  const { fd, to } = fullListener(t);
  let attempt: Attempt | null = null;
  const options = { ...TIMEOUT, onAttempt: (made: Attempt) => void (attempt = made) };
  const connecting = connectTcp(plainSocket(), to, options);
  acceptBlocking(t, fd);
  const socket = await connecting;
  (attempt as Attempt | null)?.destroy();
  t.true(socket.destroyed);
  await once(socket, 'close');
});

test('a thread that ends while it connects leaves no descriptor behind', async (t) => {
  const { to } = fullListener(t);
  const file = new URL('../support/connecting.worker.ts', import.meta.url);
  const worker = new Worker(file, { workerData: to });
  const [fd] = (await once(worker, 'message')) as [number];
  const is = socketUnder(fd);
  t.regex(is ?? '', /^socket:/);
  await worker.terminate();
  t.not(socketUnder(fd), is);
});

test('a connection that is refused later is refused', async (t) => {
  const { to, close } = fullListener(t);
  const connecting = connectTcp(plainSocket(), to, TIMEOUT);
  const refused = t.throwsAsync(connecting, {
    code: 'UPSTREAM_CONNECT',
    message: /: connect ECONNREFUSED /,
  });
  // Once the listener is closed, a reset answers the repeated SYN.
  close();
  await refused;
});
