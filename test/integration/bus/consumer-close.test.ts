/** A consumer that closes while BullMQ resets its blocking connection leaves no connection behind. */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import test from 'ava';
import { certificateSign } from '../../../lib/bus/catalog.ts';
import { openBus } from '../../support/bus.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const node = { node: 'node-1' } as const;

test('no connection is left of a consumer that closes while its blocking connection is reset', async (t) => {
  const redis = await startTestRedis(t, { nodes: ['node-1'] });
  const path = join(await makeScratch('silent'), 'redis.sock');
  const open = new Set<Socket>();
  const { promise: givenUp, resolve: giveUp } = Promise.withResolvers<Socket>();
  // Redis never answers the blocking read: BullMQ gives it up after 6 s, and waits for the end of its connection.
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect(redis.socketPath);
    open.add(client);
    let silent = false;
    client.on('data', (bytes) => {
      silent ||= bytes.includes('bzpopmin');
      if (!silent) upstream.write(bytes);
    });
    upstream.on('data', (bytes) => client.write(bytes)).on('error', () => undefined);
    client.on('end', () => {
      if (silent) giveUp(client);
      else client.end();
    });
    client.on('error', () => undefined);
    client.on('close', () => {
      upstream.destroy();
      open.delete(client);
    });
  });
  t.teardown(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  server.listen(path);
  await once(server, 'listening');
  const { bus } = openBus(t, { ...redis.config(), endpoint: { kind: 'unix', path } });
  const consumer = bus.consume(certificateSign, node, { concurrency: 1 }, async () => {});
  const blocking = await givenUp;
  await consumer.close();
  await bus.close();
  blocking.end();
  await once(blocking, 'close');
  // Every connection that was begun before this one has been accepted once this one is.
  const last = connect(path);
  t.teardown(() => last.destroy());
  await once(last, 'connect');
  await until(() => open.size === 1, { what: 'the end of all connections but the last' });
  t.pass();
});
