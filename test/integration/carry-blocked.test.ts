/** Tests that carried streams do not need their JavaScript thread. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { carriedEngine } from '../../lib/hbone/engine-carried/engine.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { MIB, openTunnel, request, serveTunnels, tunnelOptions } from '../support/tunnel-kit.ts';
import { identities } from '../support/tunnel-pki.ts';
import { ALL_CAME } from '../support/two-applications.worker.ts';
import { until } from '../support/until.ts';
import type { TwoApplications } from '../support/two-applications.worker.ts';

const WORKER = new URL('../support/two-applications.worker.ts', import.meta.url);
/** More than all windows together, so that window is given back while the thread is blocked. */
const BYTES = 64 * MIB;
const LIMIT_MS = 120_000;

test('carried streams go on in both directions while their thread is blocked', async (t) => {
  const { client, server } = await identities();
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
  const given: TwoApplications = { port, bytes: BYTES, result };
  const worker = new Worker(WORKER, { workerData: given });
  t.teardown(() => worker.terminate());
  await once(worker, 'message');
  await until(() => nears.length === 2, { what: 'both applications' });
  const [near, far] = nears;
  if (near === undefined || far === undefined) throw new Error('the applications did not connect');

  const fixture = await serveTunnels(t, carriedEngine, tunnelOptions(server), (incoming) => {
    incoming.accept({})?.carry?.(new RawSocket(far), 'b');
    return Promise.resolve();
  });
  const tunnel = await openTunnel(t, carriedEngine, fixture.port, tunnelOptions(client));
  const stream = await tunnel.open(request);
  const copy = stream.carry?.(new RawSocket(near), 'a');
  // Commands to the native thread leave at the end of a turn.
  await setImmediate();
  worker.postMessage('begin');
  // The thread obeys the commands of a turn at its end.
  await Promise.resolve();
  // Nothing of JavaScript runs here until all bytes have come.
  Atomics.wait(result, 0, 0, LIMIT_MS);
  t.is(Atomics.load(result, 0), ALL_CAME);
  t.deepEqual(await copy?.done, { error: null });
});
