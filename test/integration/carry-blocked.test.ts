/** Tests that carried streams do not need their JavaScript thread. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { randomBytes } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import type { ClientTunnel } from '../../lib/hbone/engine.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { BLOCKED, GOES_ON } from '../support/blocked-server.worker.ts';
import type { BlockedServer } from '../support/blocked-server.worker.ts';
import {
  MIB,
  openTunnel,
  request,
  roundTrip,
  serveTunnels,
  tunnelOptions,
} from '../support/tunnel-kit.ts';
import { CLIENT, SERVER, createTunnelPki, credentials, identities } from '../support/tunnel-pki.ts';
import { ALL_CAME } from '../support/two-applications.worker.ts';
import { until } from '../support/until.ts';
import type { TwoApplications } from '../support/two-applications.worker.ts';

const WORKER = new URL('../support/two-applications.worker.ts', import.meta.url);
/** More than all windows together, so that window is given back while the thread is blocked. */
const BYTES = 64 * MIB;
const LIMIT_MS = 120_000;
const BLOCKED_SERVER = new URL('../support/blocked-server.worker.ts', import.meta.url);
/** More than a server takes on one tunnel. */
const MAX_STREAMS = 10_000;

/** Resolves with the sockets of the applications and what begins their traffic. */
async function startApplications(
  t: ExecutionContext,
  withStalled: boolean,
): Promise<{ nears: readonly Socket[]; begin: () => Promise<number> }> {
  const nears: Socket[] = [];
  const listener = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    socket.on('error', () => {});
    nears.push(socket);
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  t.teardown(() => listener.close());
  const { port } = listener.address() as AddressInfo;
  const result = new Int32Array(new SharedArrayBuffer(4));
  const given: TwoApplications = { port, bytes: BYTES, withStalled, result };
  const worker = new Worker(WORKER, { workerData: given });
  t.teardown(() => worker.terminate());
  await once(worker, 'message');
  const wanted = withStalled ? 4 : 2;
  await until(() => nears.length === wanted, { what: 'the applications' });
  const begin = async (): Promise<number> => {
    // Commands to the native thread leave at the end of a turn.
    await setImmediate();
    worker.postMessage('begin');
    // The thread obeys the commands of a turn at its end.
    await Promise.resolve();
    // Nothing of JavaScript runs here until all bytes have come.
    Atomics.wait(result, 0, 0, LIMIT_MS);
    return Atomics.load(result, 0);
  };
  return { nears, begin };
}

/** Opens a tunnel whose server joins each of its streams with the next of `fars`. */
async function tunnelTo(t: ExecutionContext, fars: readonly Socket[]): Promise<ClientTunnel> {
  const { client, server } = await identities();
  const free = [...fars];
  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    incoming.accept({})?.carry?.(new RawSocket(present(free.shift(), 'a far socket')), 'b');
    return Promise.resolve();
  });
  return openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
}

test('carried streams go on in both directions while their thread is blocked', async (t) => {
  const { nears, begin } = await startApplications(t, false);
  const [near, far] = nears as [Socket, Socket];
  const tunnel = await tunnelTo(t, [far]);
  const stream = await tunnel.open(request);
  const copy = stream.carry?.(new RawSocket(near), 'a');
  t.is(await begin(), ALL_CAME);
  t.deepEqual(await copy?.done, { error: null });
});

test('a reader that stalls in their tunnel does not hold them up', async (t) => {
  const { nears, begin } = await startApplications(t, true);
  const [near, far, sender, stalled] = nears as [Socket, Socket, Socket, Socket];
  const tunnel = await tunnelTo(t, [stalled, far]);
  const other = await tunnel.open(request);
  const stalledCopy = other.carry?.(new RawSocket(sender), 'a');
  const stream = await tunnel.open(request);
  const copy = stream.carry?.(new RawSocket(near), 'a');
  t.is(await begin(), ALL_CAME);
  t.deepEqual(await copy?.done, { error: null });
  const ended = await Promise.race([stalledCopy?.done, Promise.resolve('open')]);
  t.is(ended, 'open', 'its bytes are still on their way');
});

test('new streams wait for the blocked thread of their server, and a carried one goes on', async (t) => {
  const application = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket));
  application.listen(0, '127.0.0.1');
  await once(application, 'listening');
  t.teardown(() => application.close());
  const pki = await createTunnelPki();
  const given: BlockedServer = {
    source: await pki.issue(SERVER),
    applicationPort: (application.address() as AddressInfo).port,
    gate: new Int32Array(new SharedArrayBuffer(4)),
  };
  const worker = new Worker(BLOCKED_SERVER, { workerData: given });
  t.teardown(() => worker.terminate());
  const [port] = (await once(worker, 'message')) as [number];
  const options = tunnelOptions(credentials(await pki.issue(CLIENT)), {
    maxStreams: MAX_STREAMS,
  });
  const tunnel = await openTunnel(t, carriedEngine, port, options);
  const carried = await tunnel.open(request);
  worker.postMessage('block');
  t.deepEqual(await once(worker, 'message'), [BLOCKED]);
  let answered = 0;
  t.true(tunnel.capacity > 100);
  const opened = Array.from({ length: tunnel.capacity }, async () => {
    const stream = await tunnel.open(request);
    answered += 1;
    return roundTrip(stream, 'new');
  });
  const bytes = randomBytes(BYTES);
  t.true(bytes.equals(await roundTrip(carried, bytes)));
  t.is(answered, 0, 'while its server is blocked');
  Atomics.store(given.gate, 0, 1);
  Atomics.notify(given.gate, 0);
  t.deepEqual(await once(worker, 'message'), [GOES_ON]);
  const echoes = await Promise.all(opened);
  t.true(echoes.every((echoed) => echoed.toString() === 'new'));
});
