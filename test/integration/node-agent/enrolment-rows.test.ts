/** Tests the rows of enrolled pods with a private Redis. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { tableKeys } from '../../../lib/bus/keys.ts';
import type { RowChange } from '../../../lib/bus/contract.ts';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { Enrolment } from '../../../lib/state/enrolment.ts';
import { EnrolmentRows } from '../../../services/node-agent/enrolment-rows.ts';
import type { EnrolmentRowsDeps } from '../../../services/node-agent/enrolment-rows.ts';
import { capturedLog, openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import type { TestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const SCOPE = { node: 'node-1' } as const;

/** Events that the test inserts between steps. */
interface Beside {
  /** Called once, before the next write is made. */
  before?: () => Promise<void> | void;
  /** Called after the next read of the table, before its result is delivered. */
  afterRead?: () => Promise<void>;
}

interface Rig {
  readonly redis: TestRedis;
  readonly bus: Bus;
  readonly rows: EnrolmentRows;
  /** The keys of each attempted write. */
  readonly writes: string[][];
  /** The keys of each whole table that was written. */
  readonly tables: string[][];
  /** Counts the reads of the whole table. */
  readonly reads: () => number;
  readonly beside: Beside;
  readonly lines: readonly Record<string, unknown>[];
  readonly idle: () => Promise<void>;
  /** Reads the state of each row as another process would. */
  readonly states: () => Promise<Record<string, string>>;
}

async function rig(t: ExecutionContext): Promise<Rig> {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config('node-agent.node-1'));
  const lease = bus.lease('agent', SCOPE);
  const real = bus.writer('enrolments', SCOPE, lease);
  const writes: string[][] = [];
  const tables: string[][] = [];
  const beside: Beside = {};
  let reads = 0;
  const writer: EnrolmentRowsDeps['writer'] = {
    apply: async (changes: readonly RowChange[]) => {
      writes.push(changes.map(({ key }) => key).sort());
      const { before } = beside;
      delete beside.before;
      await before?.();
      await real.apply(changes);
    },
    replaceAll: (entries) => {
      const kept = [...entries];
      tables.push(kept.map(([key]) => key).sort());
      return real.replaceAll(kept);
    },
    readAll: async () => {
      reads += 1;
      const rows = await real.readAll();
      const { afterRead } = beside;
      delete beside.afterRead;
      await afterRead?.();
      return rows;
    },
    standing: () => real.standing(),
  };
  const { log, lines } = capturedLog();
  const rows = new EnrolmentRows({ bus, lease, writer, clock: systemClock, log });
  t.teardown(() => rows.close());
  const observer = openBus(t, redis.config(), 'observer').bus;
  const table = observer.sharedWriter('enrolments', SCOPE);
  return {
    redis,
    bus,
    rows,
    writes,
    tables,
    reads: () => reads,
    beside,
    lines,
    idle: async () => void (await until(() => rows.idle, { what: 'what is wanted to be stored' })),
    states: async () => {
      await until(() => observer.connected, { what: 'Redis' });
      const stored = [...(await table.readAll())].sort(([a], [b]) => (a < b ? -1 : 1));
      return Object.fromEntries(
        stored.map(([uid, row]) => [
          uid,
          (JSON.parse(Buffer.from(row).toString()) as Enrolment).state,
        ]),
      );
    },
  };
}

function wanted(uid: string, state: Enrolment['state'] = 'enabled') {
  const enrolment = {
    podUid: uid,
    namespace: 'demo',
    name: uid,
    serviceAccount: 'web',
    netns: '4026532758',
    addresses: ['10.0.0.7'],
    state,
  };
  return { enrolment, inherited: false };
}

test('a row stays while its pod cannot be read, and goes once it can and is not wanted', async (t) => {
  const { rows, idle, states } = await rig(t);
  rows.begin();
  rows.set('a', wanted('a'));
  rows.set('b', wanted('b'));
  await idle();
  rows.keep(new Set(['b']));
  rows.delete('b');
  await idle();
  t.deepEqual(await states(), { a: 'enabled', b: 'enabled' });
  rows.keep(new Set());
  await idle();
  t.deepEqual(await states(), { a: 'enabled' });
});

test('what is said during a write is written after it', async (t) => {
  const { rows, writes, beside, idle, states } = await rig(t);
  rows.begin();
  await idle();
  const during: boolean[] = [];
  beside.before = () => {
    during.push(rows.idle);
    rows.set('a', wanted('a'));
    rows.delete('b');
    rows.set('c', wanted('c'));
  };
  rows.set('a', wanted('a', 'pending'));
  rows.set('b', wanted('b'));
  await idle();
  t.deepEqual(await states(), { a: 'enabled', c: 'enabled' });
  t.deepEqual(writes[0], ['a', 'b']);
  t.deepEqual(during, [false]);
});

test('a table that goes while it is read is read again', async (t) => {
  const { redis, bus, rows, beside, reads, idle, states } = await rig(t);
  rows.begin();
  rows.set('a', wanted('a'));
  await idle();
  const before = reads();
  const admin = redis.client();
  const reconnect = async (): Promise<void> => {
    const links: boolean[] = [];
    const release = bus.onConnection((connected) => void links.push(connected));
    await admin.call('CLIENT', 'KILL', 'TYPE', 'NORMAL', 'SKIPME', 'YES');
    await until(() => links.at(-1) === true, { what: 'another connection' });
    release();
  };
  let gone = false;
  beside.afterRead = async () => {
    // A failover to a replica that did not have the table yet. The lease exists.
    await admin.del(...Object.values(tableKeys(redis.prefix, 'enrolments', SCOPE)));
    await reconnect();
    gone = true;
  };
  await reconnect();
  await until(() => gone, { what: 'the read' });
  await until(() => rows.idle && reads() > before, { what: 'the rows' });
  t.deepEqual(await states(), { a: 'enabled' });
});

test('a write that fails is made again from what the table holds then', async (t) => {
  const { redis, rows, beside, lines, reads, idle, states } = await rig(t);
  rows.begin();
  rows.set('a', wanted('a'));
  rows.set('b', wanted('b'));
  await idle();
  const before = reads();
  const other = openBus(t, redis.config(), 'other').bus;
  await until(() => other.connected, { what: 'Redis' });
  const x = { ...wanted('x').enrolment, since: new Date().toISOString() };
  // Another writer comes first: it removes one of our rows and adds a row without an owner.
  beside.before = async () => {
    rows.delete('b');
    await other.sharedWriter('enrolments', SCOPE).apply([
      { key: 'a', value: null },
      { key: 'x', value: Buffer.from(JSON.stringify(x)) },
    ]);
  };
  rows.set('c', wanted('c'));
  await idle();
  t.deepEqual(await states(), { a: 'enabled', c: 'enabled' });
  t.true(reads() > before);
  t.true(lines.some(({ message }) => message === 'enrolments.write-failed'));
});

test('pods that come and go while Redis is away leave it as what is wanted when it is back', async (t) => {
  const { redis, rows, idle, states } = await rig(t);
  rows.begin();
  rows.set('a', wanted('a'));
  rows.set('b', wanted('b'));
  await idle();
  await redis.kill();
  await until(() => !rows.idle, { what: 'the loss' });
  for (let index = 0; index < 1_000; index += 1) {
    rows.set(`passing-${index}`, wanted(`passing-${index}`));
    rows.delete(`passing-${index}`);
  }
  rows.delete('a');
  rows.set('b', wanted('b', 'pending'));
  rows.set('c', wanted('c'));
  await redis.start({ empty: true });
  await idle();
  t.deepEqual(await states(), { b: 'pending', c: 'enabled' });
});

test('rows that Redis has lost come back in one step, those of pods that were redirected before as enabled', async (t) => {
  const { redis, rows, tables, idle, states } = await rig(t);
  rows.begin();
  rows.set('old', { ...wanted('old', 'pending'), inherited: true });
  rows.set('new', wanted('new', 'pending'));
  await idle();
  t.deepEqual(await states(), { new: 'pending', old: 'enabled' });
  await redis.kill();
  await until(() => !rows.idle, { what: 'the loss' });
  await redis.start({ empty: true });
  await idle();
  t.deepEqual(await states(), { new: 'pending', old: 'enabled' });
  // No reader may take the table for that of a node without enrolled pods.
  t.deepEqual(tables.at(-1), ['new', 'old']);
});
