/** The delta client before a server that takes connections, and is too busy for their TLS handshakes for a while. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import test from 'ava';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { manyResources, serveDelta } from '../../support/delta-server-kit.ts';
import { openDeltaClient } from '../../support/delta-test-client.ts';
import { until } from '../../support/until.ts';

/** Longer than the client waits for a TCP connection. */
const BUSY_MS = 5_500;

test('a handshake that takes longer than a TCP connection may is waited for, on the same connection', async (t) => {
  const kit = await serveDelta(t, new Map([[ADDRESS_TYPE, manyResources(3, 10)]]));
  const { rootCa, token } = kit.target;
  const port = Number(new URL(kit.target.address).port);
  const taken: Socket[] = [];
  const gate = createServer({ pauseOnConnect: true }, (socket) => {
    taken.push(socket.on('error', () => undefined));
  }).listen(0, '127.0.0.1');
  await once(gate, 'listening');
  t.teardown(() => {
    for (const socket of taken) socket.destroy();
    gate.close();
  });
  const follower = followDelta(t, () =>
    openDeltaClient({
      address: `https://127.0.0.1:${(gate.address() as AddressInfo).port}`,
      rootCa,
      token,
    }),
  );
  const ends = (): unknown[] =>
    follower.lines.filter(({ message }) => message === 'xds.stream-ended');
  const client = await until(() => taken[0], { what: 'the connection' });
  const start = performance.now();
  await until(() => performance.now() - start > BUSY_MS || ends().length > 0, { what: 'the time' });
  t.deepEqual(ends(), []);
  const server = connect(port, '127.0.0.1').on('error', () => undefined);
  t.teardown(() => server.destroy());
  client.pipe(server).pipe(client);
  await until(() => follower.client.live, { what: 'the stream' });
  t.is(follower.held.get(ADDRESS_TYPE)?.size, 3);
  t.is(taken.length, 1);
  t.deepEqual(ends(), []);
});
