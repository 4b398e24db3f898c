import test from 'ava';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { Lease } from '../../../lib/bus/lease.ts';
import { tableKeys } from '../../../lib/bus/keys.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { TableCopy, bytes, heldLease, openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const ingestLease = (bus: Bus): Promise<Lease> => heldLease(bus, 'ingest', 'mesh');

test('a reader gets the snapshot, then the changes, of a table that appears later', async (t) => {
  const redis = await startTestRedis(t);
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  const reader = reading.bus.reader('addresses', 'mesh', copy);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const writer = bus.writer('addresses', 'mesh', await ingestLease(bus));
  t.false(reader.synced);
  await writer.replaceAll([
    ['a', bytes('1'), 'v1'],
    ['b', bytes('2')],
  ]);
  await until(() => reader.synced, { what: 'the copy' });
  t.deepEqual(Object.fromEntries(copy.rows), { a: '1', b: '2' });
  await writer.apply([
    { key: 'c', value: bytes('3') },
    { key: 'a', value: null },
    { key: 'b', value: bytes('20'), tag: 'v2' },
  ]);
  await until(() => copy.changes === 3, { what: 'the changes' });
  t.deepEqual(Object.fromEntries(copy.rows), { b: '20', c: '3' });
  t.is(copy.copies, 1);
  const rows = await writer.readRows();
  t.is(rows.get('b')?.tag, 'v2');
  t.is(rows.get('c')?.tag, '');
  t.is(rows.size, 2);
});

test('of two writers only the holder of the lease writes', async (t) => {
  const redis = await startTestRedis(t);
  const first = openBus(t, redis.config('xds-ingester'), 'first');
  const second = openBus(t, redis.config('xds-ingester'), 'second');
  const lease = await ingestLease(first.bus);
  const old = first.bus.writer('addresses', 'mesh', lease);
  await old.replaceAll([['a', bytes('1')]]);
  const standby = second.bus.lease('ingest', 'mesh');
  const next = second.bus.writer('addresses', 'mesh', standby);
  await t.throwsAsync(next.apply([{ key: 'a', value: bytes('2') }]), { instanceOf: MeshError });

  // The holder is cut off and does not know it: its lease expires and the standby wins.
  const admin = redis.client();
  await admin.del(`${redis.prefix}:{mesh}:lease:ingest`);
  await until(() => standby.held || lease.held, { what: 'a holder', timeoutMs: 20_000 });
  await admin.set(`${redis.prefix}:{mesh}:lease:ingest`, '99:somebody else');
  const error = await t.throwsAsync(old.apply([{ key: 'a', value: bytes('x') }]), {
    instanceOf: MeshError,
  });
  t.is(error.code, 'STATE_CONFLICT');
  t.is(error.detail['why'], 'lease');
  const replaced = await t.throwsAsync(old.replaceAll([['z', bytes('x')]]));
  t.is((replaced as MeshError).code, 'STATE_CONFLICT');
  const copy = new TableCopy();
  first.bus.reader('addresses', 'mesh', copy);
  await until(() => copy.copies === 1, { what: 'the copy' });
  t.deepEqual([...copy.rows], [['a', '1']]);
});

test('a lease that ran out goes on if nobody took it, and is lost if somebody did', async (t) => {
  const redis = await startTestRedis(t);
  const { bus, lines } = openBus(t, redis.config('xds-ingester'));
  const lease = bus.lease('ingest', 'mesh', { ttlMs: 120_000, renewMs: 20 });
  await until(() => lease.held, { what: 'the lease' });
  const { token } = lease;
  const admin = redis.client();
  const key = `${redis.prefix}:{mesh}:lease:ingest`;
  await admin.del(key);
  await until(async () => (await admin.get(key)) === token, { what: 'its renewal' });
  t.is(lease.token, token);
  t.false(lines.some((line) => line['message'] === 'lease.changed' && line['held'] === false));
  await admin.multi().incr(`${key}:fence`).del(key).exec();
  await until(() => lease.token !== token && lease.held, { what: 'the next term' });
  t.true(lines.some((line) => line['message'] === 'lease.changed' && line['held'] === false));
});

test('a clean close hands the lease over at once, under a higher fencing number', async (t) => {
  const redis = await startTestRedis(t);
  const first = openBus(t, redis.config('xds-ingester'), 'first');
  const second = openBus(t, redis.config('xds-ingester'), 'second');
  const lease = await ingestLease(first.bus);
  const standby = second.bus.lease('ingest', 'mesh');
  const changes: boolean[] = [];
  standby.onChange((held) => changes.push(held));
  t.false(standby.held);
  await lease.close();
  await until(() => standby.held, { what: 'the standby', timeoutMs: 6_000 });
  t.deepEqual(changes, [true]);
  t.is(await redis.client().get(`${redis.prefix}:{mesh}:lease:ingest:fence`), '2');
});

test('Redis killed under load comes back with its data: nobody re-reads, nothing is lost', async (t) => {
  const redis = await startTestRedis(t);
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  const reader = reading.bus.reader('addresses', 'mesh', copy);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const lease = await ingestLease(bus);
  const writer = bus.writer('addresses', 'mesh', lease);
  await writer.replaceAll([['k0', bytes('0')]]);
  await until(() => reader.synced, { what: 'the copy' });
  for (let index = 1; index <= 50; index += 1) {
    await writer.apply([{ key: `k${index}`, value: bytes(String(index)) }]);
  }
  await until(() => copy.rows.size === 51, { what: 'the reader to have them all' });
  // Everything is in the file before the kill, so nothing is lost.
  await redis.client().call('BGREWRITEAOF');
  await until(
    async () => (await redis.client().info('persistence')).includes('aof_rewrite_in_progress:0'),
    {
      what: 'the append-only file',
    },
  );
  await redis.kill();
  await until(() => !bus.connected, { what: 'the loss' });
  const error = await t.throwsAsync(writer.apply([{ key: 'k51', value: bytes('51') }]));
  t.is((error as MeshError).code, 'BUS_UNAVAILABLE');
  t.true(reader.synced);
  t.is(copy.rows.size, 51);
  await redis.start();
  await until(() => bus.connected, { what: 'Redis' });
  await until(
    async () => {
      await writer.apply([{ key: 'k51', value: bytes('51') }]);
      return true;
    },
    { what: 'a write', timeoutMs: 20_000 },
  );
  await until(() => copy.rows.has('k51'), { what: 'the change' });
  t.is(copy.rows.size, 52);
  t.is(await writer.standing(), 'intact');
});

test('Redis that lost its data is noticed by the writer, and readers take the new epoch', async (t) => {
  const redis = await startTestRedis(t);
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  const reader = reading.bus.reader('addresses', 'mesh', copy);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const lease = await ingestLease(bus);
  const writer = bus.writer('addresses', 'mesh', lease);
  await writer.replaceAll([
    ['a', bytes('1')],
    ['b', bytes('2')],
  ]);
  await until(() => reader.synced, { what: 'the copy' });
  await redis.kill();
  await redis.start({ empty: true });
  await until(() => bus.connected, { what: 'Redis' });
  await until(async () => (await writer.standing()) === 'absent', { what: 'the loss' });
  const refused = await until(
    async () => {
      const error = await writer.apply([{ key: 'c', value: bytes('3') }]).catch((e: unknown) => e);
      return error instanceof MeshError && error.detail['why'] === 'absent' ? error : null;
    },
    { what: 'the refusal', timeoutMs: 20_000 },
  );
  t.is(refused.code, 'STATE_CONFLICT');
  // The reader keeps the last known state until Redis has it again.
  t.true(reader.synced);
  t.is(copy.rows.size, 2);
  await writer.replaceAll([['a', bytes('10')]]);
  await until(() => copy.copies === 2, { what: 'the second copy', timeoutMs: 20_000 });
  t.deepEqual([...copy.rows], [['a', '10']]);
  t.is(new Set(copy.epochs).size, 2);
  t.regex(
    await reading.metrics.render(),
    /weft_bus_resyncs_total\{table="addresses",reason="epoch"\} 1/,
  );
});

test('a reader that finds its place trimmed away reads again', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const writer = bus.writer('addresses', 'mesh', await ingestLease(bus));
  await writer.replaceAll([['a', bytes('1')]]);
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  reading.bus.reader('addresses', 'mesh', copy);
  await until(() => copy.copies === 1, { what: 'the copy' });
  const admin = redis.client();
  const { log } = tableKeys(redis.prefix, 'addresses', 'mesh');
  // The reader is cut off until the log no longer holds its position.
  const transaction = admin.multi().call('CLIENT', 'KILL', 'USER', 'node-proxy.node-1');
  await transaction.exec();
  await writer.apply(
    Array.from({ length: 20 }, (_, index) => ({ key: `k${index}`, value: bytes('x') })),
  );
  await admin.xtrim(log, 'MAXLEN', 3);
  await until(() => copy.rows.size === 21, { what: 'all rows', timeoutMs: 15_000 });
  t.pass();
});

test('rows and log entries that are garbage are counted, named and skipped', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const writer = bus.writer('authorizations', 'mesh', await ingestLease(bus));
  await writer.replaceAll([['good', bytes('1')]]);
  const admin = redis.client();
  const keys = tableKeys(redis.prefix, 'authorizations', 'mesh');
  await admin.hset(keys.data, 'bad-row', 'abc');
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  reading.bus.reader('authorizations', 'mesh', copy);
  await until(() => copy.copies === 1, { what: 'the copy' });
  await admin.xadd(keys.log, '*', 'nonsense', 'true');
  await admin.xadd(keys.log, '*', 'e', copy.epochs[0] ?? '', 'v', 'many', 'o', 's', 'k', 'x');
  await writer.apply([{ key: 'after', value: bytes('2') }]);
  await until(() => copy.rows.has('after'), { what: 'the change behind the garbage' });
  t.deepEqual([...copy.rows.keys()].sort(), ['after', 'good']);
  t.is(copy.copies, 1);
  t.regex(await reading.metrics.render(), /weft_bus_malformed_total\{table="authorizations"\} 3/);
  const errors = reading.lines.filter((line) => line['message'] === 'bus.malformed');
  t.is(errors.length, 3);
  t.is(errors[0]?.['key'], 'bad-row');
  t.is(errors[0]?.['level'], 'error');
});

test('20,000 rows are written and read again in slices', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const writer = bus.writer('addresses', 'mesh', await ingestLease(bus));
  const value = bytes('x'.repeat(300));
  const rows = function* (): Generator<[string, Uint8Array]> {
    for (let index = 0; index < 20_000; index += 1) yield [`uid-${index}`, value];
  };
  await writer.replaceAll(rows());
  const reading = openBus(t, redis.config('node-proxy.node-1'));
  const copy = new TableCopy();
  const reader = reading.bus.reader('addresses', 'mesh', copy);
  await until(() => reader.synced, { what: 'the copy', timeoutMs: 30_000 });
  t.is(copy.rows.size, 20_000);
  // Changes during a reader's copy are neither lost nor undone.
  const second = new TableCopy();
  const again = reading.bus.reader('addresses', 'mesh', second);
  for (let round = 0; round < 20; round += 1) {
    await writer.apply([
      { key: `uid-${round}`, value: bytes(`changed ${round}`) },
      { key: `uid-${19_999 - round}`, value: null },
    ]);
  }
  await until(() => again.synced && second.rows.size === 19_980, {
    what: 'both',
    timeoutMs: 30_000,
  });
  t.is(second.rows.get('uid-19'), 'changed 19');
  await until(() => copy.rows.size === 19_980, { what: 'the first reader' });
});

test('any replica may write a shared table', async (t) => {
  const redis = await startTestRedis(t);
  const first = openBus(t, redis.config('policy-evaluator'), 'one').bus;
  const one = first.sharedWriter('programs', 'mesh');
  const two = openBus(t, redis.config('policy-evaluator'), 'two').bus;
  const other = two.sharedWriter('programs', 'mesh');
  await until(() => first.connected && two.connected, { what: 'Redis' });
  await other.apply([{ key: 'set-1', value: bytes('p1') }]);
  await one.apply([{ key: 'set-2', value: bytes('p2') }]);
  await other.apply([{ key: 'set-3', value: bytes('p3') }]);
  await one.apply([{ key: 'set-1', value: null }]);
  t.deepEqual([...(await other.readAll()).keys()].sort(), ['set-2', 'set-3']);
});

test('a reader and a writer made while Redis is absent work once it is there', async (t) => {
  const redis = await startTestRedis(t, { started: false });
  const { bus } = openBus(t, redis.config('xds-ingester'));
  const copy = new TableCopy();
  bus.reader('rejections', 'mesh', copy);
  const lease = bus.lease('ingest', 'mesh');
  await t.throwsAsync(
    bus
      .writer('rejections', 'mesh', lease)
      .apply([])
      .then(() => bus.queueCounts(['mesh'])),
    {
      instanceOf: MeshError,
    },
  );
  await redis.start();
  await until(() => lease.held, { what: 'the lease', timeoutMs: 20_000 });
  await bus.writer('rejections', 'mesh', lease).replaceAll([]);
  await until(() => copy.copies === 1, { what: 'the copy' });
  t.is(copy.rows.size, 0);
});
