/** Tests how the load's program counts refused and cut connections. */
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { Socket } from 'node:net';
import { openNetns, closeFd } from '../../lib/linux/netns.ts';
import { listenTcp } from '../../lib/linux/sockets.ts';
import { LOAD_PORT, SMALL_BYTES } from '../load/messages.ts';
import type { LoadMessage } from '../load/messages.ts';
import { LoadProcess } from '../load/process.ts';
import { createNetns } from '../support/netns-kit.ts';
import { netnsTest as test } from '../support/netns-test.ts';
import { until } from '../support/until.ts';

const ADDRESS = '127.0.0.1';
/** The limit of a run; it ends sooner once every connection has ended. */
const LONG_SECONDS = 60;

test('refused connections are not counted as lost, and lost ones are', async (t) => {
  const netns = await createNetns(t, 'load');
  await netns.ip('link set lo up');
  const netnsFd = openNetns(netns.path);
  t.teardown(() => closeFd(netnsFd));
  const open = new Set<Socket>();
  let full = false;
  const server = createServer((socket) => {
    socket.on('error', () => undefined);
    // Accepts and closes at once, like a full proxy.
    if (full) {
      socket.destroy();
      return;
    }
    open.add(socket);
    socket.once('close', () => open.delete(socket));
    socket.on('data', () => socket.write(Buffer.alloc(SMALL_BYTES)));
  });
  const listening = {
    netnsFd,
    address: ADDRESS,
    port: LOAD_PORT,
    mark: 0,
    reusePort: false,
  } as const;
  server.listen({ fd: listenTcp({ ...listening, transparent: 'off' }).fd });
  await once(server, 'listening');
  t.teardown(() => server.close());
  const client = new LoadProcess('client');
  t.teardown(() => client.stop());
  const ask = (message: LoadMessage): ReturnType<LoadProcess['ask']> => client.ask(message);
  const pods = [{ netns: netns.path, ip: ADDRESS }];
  await ask({ type: 'use', from: pods, to: pods });

  t.like(await ask({ type: 'hold', connections: 6 }), { done: 6, failures: [], lost: 0 });
  full = true;
  const none = await ask({ type: 'bulk', connections: 4, seconds: LONG_SECONDS });
  t.like(none, { done: 0, bytes: 0, lost: 0 });
  t.is(none.failures.length, 4);

  // Cut the connections that have carried bytes, and one of the held ones.
  full = false;
  const [held] = open;
  const carrying = ask({ type: 'bulk', connections: 1, seconds: LONG_SECONDS });
  await until(() => open.size === 7, { what: 'the connection' });
  const last = [...open].at(-1);
  await until(() => (last?.bytesWritten ?? 0) > 0, { what: 'the question' });
  last?.end();
  t.like(await carrying, { done: 0, bytes: SMALL_BYTES, lost: 1, failures: [] });
  held?.end();
  await until(() => open.size === 5, { what: 'both to end' });
  t.like(await ask({ type: 'release' }), { done: 5, lost: 1 });
});
