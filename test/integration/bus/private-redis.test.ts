import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import type { Redis } from 'ioredis';
import { writeAclFiles } from '../../../lib/bus/acl-files.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { heldLease, openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';
import { makeScratch } from '../../support/leftovers.ts';

/** Waits until the append-only file has all that Redis holds: with a slow disk it writes up to two seconds later. */
const written = (admin: Redis): Promise<unknown> =>
  until(async () => /aof_buffer_length:0\b/.test(await admin.info('persistence')), {
    what: 'the append-only file',
  });

test('it listens on its socket alone, keeps what it is told and never evicts', async (t) => {
  const redis = await startTestRedis(t);
  const admin = redis.client();
  for (const [setting, value] of [
    ['port', '0'],
    ['appendonly', 'yes'],
    ['appendfsync', 'everysec'],
    ['maxmemory-policy', 'noeviction'],
  ] as const) {
    t.deepEqual(await admin.config('GET', setting), [setting, value]);
  }
  await admin.set('kept', 'yes');
  await written(admin);
  admin.disconnect();
  await redis.kill();
  await redis.start();
  t.is(await redis.client().get('kept'), 'yes');
});

test('a restart keeps what scripts and transactions have written', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('node-agent.node-1'));
  const lease = await heldLease(bus, 'agent', { node: 'node-1' });
  const writer = bus.writer('enrolments', { node: 'node-1' }, lease);
  await writer.replaceAll([['a', Buffer.from('first')]]);
  await writer.apply([{ key: 'b', value: Buffer.from('second') }]);
  const admin = redis.client();
  await admin.multi().set('x', '1').set('y', '2').exec();
  await written(admin);
  admin.disconnect();
  await redis.kill();
  await redis.start();
  t.deepEqual(await redis.client().mget('x', 'y'), ['1', '2']);
  const read = bus.sharedWriter('enrolments', { node: 'node-1' });
  const rows = await until(() => read.readAll(), { what: 'the rows' });
  t.deepEqual([...rows.keys()].sort(), ['a', 'b']);
});

test('passwords are made once, for their owner alone', async (t) => {
  const dir = await makeScratch('redis');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const write = (): ReturnType<typeof writeAclFiles> =>
    writeAclFiles({
      users: [{ name: 'cli', role: 'cli', node: null }],
      prefix: 'weft',
      secretsDir: join(dir, 'secrets'),
      aclFile: join(dir, 'users.acl'),
    });
  const { passwordFiles } = await write();
  const path = passwordFiles.get('cli') ?? '';
  const before = await stat(path);
  t.is(before.mode & 0o777, 0o600);
  await write();
  t.is((await stat(path)).mtimeMs, before.mtimeMs);
});

test('a Redis that hangs is an error for callers and is left behind by readers', async (t) => {
  const redis = await startTestRedis(t);
  const { bus, lines } = openBus(t, redis.config('policy-evaluator'));
  await until(() => bus.connected, { what: 'Redis' });
  redis.pause();
  const error = await t.throwsAsync(bus.queueCounts(['mesh']), { instanceOf: MeshError });
  t.is(error.code, 'BUS_UNAVAILABLE');
  redis.resume();
  await until(() => bus.queueCounts(['mesh']), { what: 'an answer' });
  t.false(lines.some(({ level }) => level === 'error'));
});

test('an eviction policy is reported as an error', async (t) => {
  const redis = await startTestRedis(t);
  await redis.client().config('SET', 'maxmemory-policy', 'allkeys-lru');
  const { lines } = openBus(t, redis.config('cli'));
  await until(
    () => lines.some(({ message }) => message === 'redis.eviction-policy-must-be-noeviction'),
    { what: 'the report' },
  );
  t.pass();
});
