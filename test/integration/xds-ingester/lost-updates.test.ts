/** Tests that Redis equals the memory of the ingester after any failure at any point of a write. */
import { randomUUID } from 'node:crypto';
import { dirname, join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import type { Redis } from 'ioredis';
import type { Lease } from '../../../lib/bus/lease.ts';
import { leaseKey, tableKeys } from '../../../lib/bus/keys.ts';
import { loadScript } from '../../../lib/bus/script.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { MeshState, OWNED_TABLES } from '../../../services/xds-ingester/mesh-state.ts';
import { StatePublisher } from '../../../services/xds-ingester/state-publisher.ts';
import { capturedLog, openBus } from '../../support/bus.ts';
import { startCutProxy } from '../../support/cut-proxy.ts';
import type { CutProxy } from '../../support/cut-proxy.ts';
import { startTestRedis } from '../../support/redis.ts';
import type { TestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

/** More rows than one step stages. */
const ROWS = 1_500;

/** Bytes that Redis may still allocate: enough for the lease, a connection and one step. */
const HEADROOM = 400_000;

/** Rows of a kilobyte each; together they need several times as much memory as buffers may release. */
const MORE = 6_000;

interface Rig {
  readonly redis: TestRedis;
  readonly admin: Redis;
  readonly proxy: CutProxy;
  readonly lease: Lease;
  readonly state: MeshState;
  readonly source: { live: boolean; reopened: number };
  readonly lines: readonly Record<string, unknown>[];
  /** Adds a row, removes one, and changes one. */
  readonly churn: () => void;
  /** Waits until the publisher considers everything written, and returns the rows in which Redis and memory differ. */
  readonly differences: () => Promise<readonly string[]>;
}

const text = (value: string): Uint8Array => Buffer.from(value.padEnd(100, '.'));

async function rig(t: ExecutionContext): Promise<Rig> {
  const redis = await startTestRedis(t);
  const admin = redis.client();
  const path = join(dirname(redis.socketPath), 'cut.sock');
  const proxy = await startCutProxy(t, path, redis.socketPath);
  const config = { ...redis.config('xds-ingester'), endpoint: { kind: 'unix', path } } as const;
  const { bus } = openBus(t, config, 'ingester');
  const { log, lines } = capturedLog();
  const lease = bus.lease('ingest', 'mesh');
  const state: MeshState = new MeshState(systemClock, [], () => undefined, { holdMs: 0, log });
  const source = {
    live: true,
    complete: true,
    partial: false,
    reopened: 0,
    start: () => undefined,
    reopen: () => void (source.reopened += 1),
  };
  const publisher = new StatePublisher(
    { bus, lease, state, source, clock: systemClock, log },
    () => undefined,
  );
  t.teardown(() => publisher.close());
  const differences = async (): Promise<readonly string[]> => {
    await until(() => lease.held && publisher.idle, { what: 'everything to be written' });
    const memory = memoryOf(state);
    const stored = await storedIn(redis, admin);
    return [...new Set([...memory.keys(), ...stored.keys()])].filter(
      (key) => memory.get(key) !== stored.get(key),
    );
  };
  // Set rows only after Redis was read: until then the memory holds Redis's rows.
  await differences();
  for (let index = 0; index < ROWS; index += 1) {
    state.tables.addresses.set(`pod-${index}`, { value: text('a'), tag: '1' });
  }
  for (let index = 0; index < 5; index += 1) {
    state.tables.authorizations.set(`ns/p-${index}`, { value: text('p'), tag: '1' });
  }
  publisher.poke();
  let turn = 0;
  const churn = (): void => {
    turn += 1;
    state.tables.addresses.set(`new-${turn}`, { value: text('n'), tag: '1' });
    state.tables.addresses.set('pod-0', { value: text(`turn ${turn}`), tag: String(turn) });
    state.tables.addresses.delete(`pod-${turn}`);
    state.tables.authorizations.set('ns/p-0', { value: text(`turn ${turn}`), tag: String(turn) });
    publisher.poke();
  };
  return { redis, admin, proxy, lease, state, source, lines, churn, differences };
}

function memoryOf(state: MeshState): Map<string, string> {
  const rows = new Map<string, string>();
  for (const table of OWNED_TABLES) {
    for (const [key, { value, tag }] of state.tables[table].entries()) {
      rows.set(`${table} ${key}`, `${tag} ${Buffer.from(value).toString()}`);
    }
  }
  return rows;
}

async function storedIn({ prefix }: TestRedis, admin: Redis): Promise<Map<string, string>> {
  const rows = new Map<string, string>();
  for (const table of OWNED_TABLES) {
    const keys = tableKeys(prefix, table, 'mesh');
    const tags = await admin.hgetall(keys.tags);
    for (const [key, value] of Object.entries(await admin.hgetallBuffer(keys.data))) {
      // The value follows an 8-byte version.
      rows.set(`${table} ${key}`, `${tags[key] ?? ''} ${value.subarray(8).toString()}`);
    }
  }
  return rows;
}

/** Leaves Redis as after a failover to a replica that missed the last write of a policy. */
async function loseAPolicy({ admin, redis }: Rig): Promise<void> {
  const { data, meta } = tableKeys(redis.prefix, 'authorizations', 'mesh');
  await admin.hdel(data, 'ns/p-4');
  await admin.hincrby(meta, 'version', -1);
}

async function loseTables({ admin, redis }: Rig): Promise<void> {
  await admin.del(
    ...OWNED_TABLES.flatMap((table) => Object.values(tableKeys(redis.prefix, table, 'mesh'))),
  );
}

/** Leaves Redis empty, as when it was replaced or flushed. */
async function loseEverything(kit: Rig): Promise<void> {
  await loseTables(kit);
  const lease = leaseKey(kit.redis.prefix, 'ingest', 'mesh');
  await kit.admin.del(lease, `${lease}:fence`);
}

/** Puts another writer's rows into every table. */
async function findAnothers({ admin, redis }: Rig): Promise<void> {
  for (const table of OWNED_TABLES) {
    const { data, meta } = tableKeys(redis.prefix, table, 'mesh');
    await admin.hset(meta, 'epoch', randomUUID());
    await admin.hset(data, 'foreign', Buffer.concat([Buffer.alloc(8), text('x')]));
  }
}

const losses = { loseAPolicy, loseEverything, findAnothers };

for (const [name, lose] of Object.entries(losses)) {
  for (const side of ['before', 'after'] as const) {
    test(`the connection breaks ${side} each step of the repair after ${name}`, async (t) => {
      t.timeout(240_000);
      const kit = await rig(t);
      await kit.differences();
      const cuts: Record<string, number> = {};
      for (const script of ['table-stage', 'table-swap', 'table-apply']) {
        const { sha } = loadScript(script);
        for (let nth = 1; ; nth += 1) {
          await lose(kit);
          kit.proxy.arm({ needle: sha, nth, side, onCut: kit.churn });
          kit.proxy.cutAll();
          kit.churn();
          t.deepEqual(await kit.differences(), [], `${script} ${nth}`);
          if (!kit.proxy.done) break;
          cuts[script] = nth;
        }
      }
      t.log(cuts);
      t.true((cuts['table-apply'] ?? 0) > 0 || (cuts['table-swap'] ?? 0) > 0);
    });
  }
}

// The lease exists: without free memory it could not be taken again.
for (const lose of [loseAPolicy, loseTables]) {
  test(`Redis has no memory for the repair after ${lose.name}: nothing is lost once it has`, async (t) => {
    t.timeout(240_000);
    const kit = await rig(t);
    const { admin, proxy, state, lines, churn, differences } = kit;
    await differences();
    await lose(kit);
    const used = Number(/used_memory:(\d+)/.exec(await admin.info('memory'))?.[1]);
    await admin.config('SET', 'maxmemory', String(used + HEADROOM));
    proxy.cutAll();
    for (let index = 0; index < MORE; index += 1) {
      state.tables.addresses.set(`more-${index}`, { value: text('m'.repeat(1_000)), tag: '1' });
    }
    churn();
    await until(() => lines.some(({ error }) => /OOM/.test(String(error))), { what: 'a refusal' });
    churn();
    await admin.config('SET', 'maxmemory', '0');
    t.deepEqual(await differences(), []);
  });
}

for (const empty of [true, false]) {
  test(`Redis restarts ${empty ? 'empty' : 'with its data'} while changes are written`, async (t) => {
    t.timeout(240_000);
    const { redis, state, churn, differences } = await rig(t);
    await differences();
    for (let index = 0; index < ROWS; index += 1) {
      state.tables.addresses.set(`pod-${index}`, { value: text('b'), tag: '2' });
    }
    churn();
    await redis.kill();
    churn();
    await redis.start({ empty });
    t.deepEqual(await differences(), []);
  });
}

test('another ingester wrote as many rows as a failover lost: the tables look intact, and are compared', async (t) => {
  t.timeout(240_000);
  const kit = await rig(t);
  const { redis, admin, lease, source, churn, differences } = kit;
  await differences();
  source.live = false;
  const key = leaseKey(redis.prefix, 'ingest', 'mesh');
  // The lease was lost with the lost writes, and another process had it.
  await admin.set(key, '99:somebody', 'PX', 60_000);
  await until(() => !lease.held, { what: 'the loss of the lease' });
  const { data } = tableKeys(redis.prefix, 'addresses', 'mesh');
  await admin.hdel(data, 'pod-7');
  await admin.hset(data, 'pod-8', Buffer.concat([Buffer.alloc(8), text('older')]));
  await admin.del(key);
  churn();
  t.deepEqual(await differences(), []);
  t.is(source.reopened, 0, 'what is in memory is kept');
});
