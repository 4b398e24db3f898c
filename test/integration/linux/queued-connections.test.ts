import { once } from 'node:events';
import { readlinkSync } from 'node:fs';
import { connect } from 'node:net';
import { networkInterfaces } from 'node:os';
import { setImmediate as immediate } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import test from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { acceptQueued, listenTcp, openTcp } from '../../../lib/linux/sockets.ts';
import { RawListener } from '../../../lib/net/raw-listener.ts';
import { RawSocket } from '../../../lib/net/raw-socket.ts';
import { until } from '../../support/until.ts';

const LISTEN = { netnsFd: null, mark: 0, reusePort: true, transparent: 'off', port: 0 } as const;

const loopback = new Set(
  Object.values(networkInterfaces()).flatMap((all = []) => all.map((one) => one.address)),
);

function socketUnder(fd: number): string | null {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return null;
  }
}

for (const address of ['127.0.0.1', '::1']) {
  // A container may lack IPv6; network namespaces of the tests always have it.
  const here = loopback.has(address) ? test : test.skip;
  here(
    `what waits at a closing listener of ${address} is accepted, and loses no byte`,
    async (t) => {
      const { fd, port } = listenTcp({ ...LISTEN, address });
      // Nothing accepts yet: the kernel completes the handshakes.
      const clients = await Promise.all(
        Array.from({ length: 20 }, async () => {
          const socket = connect(port, address);
          await once(socket, 'connect');
          socket.write('before');
          return socket;
        }),
      );
      const accepted = acceptQueued(fd, false, 5).map(([held]) => new RawSocket(held).adopt());
      t.is(accepted.length, 5);
      const listener = new RawListener(fd, {
        redirected: false,
        clock: systemClock,
        onAccepted: ([held, names]) => {
          t.truthy(names);
          accepted.push(new RawSocket(held).adopt());
        },
        onRefused: (error) => t.fail(error.message),
      });
      // In the turn in which the listener begins, it has accepted nothing.
      t.is(accepted.length, 5);
      listener.close(20);
      t.is(accepted.length, 20);
      listener.close(20);
      for (const socket of accepted) {
        t.is(socket.bytesRead, 0);
        t.true(socket.isPaused() || socket.readableFlowing === false);
        const data = once(socket, 'data') as Promise<[Buffer]>;
        socket.resume();
        const [chunk] = await data;
        t.is(chunk.toString(), 'before');
      }
      for (const socket of [...clients, ...accepted]) socket.destroy();
    },
  );
}

test('a thread that ends resets what it has accepted, and closes its listener', async (t) => {
  const { fd, port } = listenTcp({ ...LISTEN, address: '127.0.0.1' });
  const listening = socketUnder(fd);
  const file = new URL('../../support/accepting.worker.ts', import.meta.url);
  const worker = new Worker(file, { workerData: fd });
  const accepted = once(worker, 'message');
  const client = connect(port, '127.0.0.1');
  const reset = once(client, 'error') as Promise<[NodeJS.ErrnoException]>;
  await accepted;
  client.resume();
  await worker.terminate();
  t.is((await reset)[0].code, 'ECONNRESET');
  t.not(socketUnder(fd), listening);
});

test('a listener that cannot accept asks again only after a while', async (t) => {
  // Nothing can be accepted from a socket that does not listen.
  const fd = openTcp({ netnsFd: null, family: 4, mark: 0, noDelay: false });
  const clock = new FakeClock();
  const refusals: unknown[] = [];
  const listener = new RawListener(fd, {
    redirected: false,
    clock,
    onAccepted: () => t.fail('accepted'),
    onRefused: (error) => refusals.push(error.detail['errno']),
  });
  await until(() => refusals.length > 0, { what: 'a refusal' });
  for (let turn = 0; turn < 3; turn += 1) await immediate();
  t.deepEqual(refusals, ['EINVAL']);
  await clock.advance(clock.nextInMs ?? 0);
  await until(() => refusals.length > 1, { what: 'the next attempt' });
  listener.close(0);
  t.is(refusals.length, 2);
});
