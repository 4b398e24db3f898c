/** Tests faults of Redis while the mesh runs: after its recovery readers equal the writer, and jobs are done. */
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { SIGNED_BOARD, boards, certificateSign } from '../../../lib/bus/catalog.ts';
import { ServerCheck } from '../../../lib/bus/server-check.ts';
import { createClient } from '../../../lib/bus/redis-client.ts';
import { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { capturedLog, openBus } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { createIngesterKit, serveWorkload } from '../../support/ingester-kit.ts';
import type { IngesterKit } from '../../support/ingester-kit.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const NODE = { node: 'node-1' } as const;
const WORKLOADS = 200;

/** A writer, a reader, and a queue with its consumer, each as its own user. */
interface Scene {
  readonly kit: IngesterKit;
  readonly actor: Awaited<ReturnType<IngesterKit['start']>>;
  /** Makes a change, and waits until the reader has everything and a job is done. */
  works(round: number): Promise<void>;
  /** Makes a change, and does not wait. */
  change(round: number): void;
  /** Adds a job; false when Redis refuses it. */
  add(id: string): Promise<boolean>;
}

async function scene(t: ExecutionContext): Promise<Scene> {
  t.timeout(120_000);
  const kit = await createIngesterKit(t);
  const fetcher = openBus(t, kit.redis.config('cert-fetcher.node-1'), 'cert-fetcher').bus;
  const proxy = openBus(t, kit.redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const { body, sample } = boards.signed;
  const results = fetcher.results(SIGNED_BOARD, NODE, body);
  fetcher.consume(certificateSign, NODE, { concurrency: 2 }, (_job, { id }) =>
    results.put(id, sample, 60_000),
  );
  const queue = proxy.queue(certificateSign, NODE);
  const answers = proxy.results(SIGNED_BOARD, NODE, body);
  const change = (round: number): void => {
    for (let index = 0; index < WORKLOADS; index += 1) {
      serveWorkload(kit.ads, `uid-${index}`, `${round}`, `10.${round}.0.${index}`);
    }
    kit.ads.push();
  };
  const equal = (): boolean => {
    const served = kit.ads.resources.get(ADDRESS_TYPE) ?? new Map();
    const { rows } = kit.tables.addresses;
    return (
      rows.size === served.size &&
      [...served].every(([key, row]) => rows.get(key) === Buffer.from(row.bytes ?? []).toString())
    );
  };
  const add = (id: string): Promise<boolean> =>
    queue.add(id, certificateSign.sample).then(
      () => true,
      () => false,
    );
  change(0);
  const actor = await kit.start();
  const works = async (round: number): Promise<void> => {
    change(round);
    await until(equal, { what: `the state of round ${round}`, timeoutMs: 40_000 });
    const id = `job-${round}`;
    await until(() => add(id), { what: id, timeoutMs: 40_000 });
    // As a proxy does after a wait in vain: it adds the job again, because the queue may have been emptied.
    await until(async () => (await answers.wait(id, 2_000)) !== null || !(await add(id)), {
      what: `the answer of ${id}`,
      timeoutMs: 40_000,
    });
  };
  await works(1);
  return { kit, actor, works, change, add };
}

test('FLUSHALL and SCRIPT FLUSH while all are connected', async (t) => {
  const { kit, works } = await scene(t);
  const admin = kit.redis.client();
  for (const round of [2, 3]) {
    await admin.flushall();
    await admin.script('FLUSH');
    await works(round);
  }
  t.true(kit.tables.addresses.epochs.length > 1);
});

test('passwords are changed, connections cut, and the files follow later', async (t) => {
  const { kit, works, add } = await scene(t);
  const admin = kit.redis.client();
  const users = ['xds-ingester', 'node-proxy.node-1', 'cert-fetcher.node-1'];
  for (const user of users) await admin.call('ACL', 'SETUSER', user, 'resetpass', '>changed');
  for (const user of users) await admin.call('CLIENT', 'KILL', 'USER', user);
  await until(async () => !(await add('refused')), { what: 'the refusal' });
  for (const user of users) {
    const file = kit.redis.config(user).passwordFile ?? '';
    t.not(readFileSync(file, 'utf8').trim(), 'changed');
    writeFileSync(file, 'changed\n');
  }
  await works(2);
});

test('memory is full: writes are refused, what is known stays, all is made up for later', async (t) => {
  const { kit, actor, change, works, add } = await scene(t);
  const admin = kit.redis.client();
  await admin.config('SET', 'maxmemory', '1');
  change(2);
  await until(async () => !(await add('too-much')), { what: 'the refusal of a job' });
  await until(() => actor.lines.some((line) => JSON.stringify(line).includes('OOM')), {
    what: 'the log to say so',
  });
  t.is(kit.tables.addresses.rows.size, WORKLOADS);
  await admin.config('SET', 'maxmemory', '0');
  await works(3);
});

test('the server becomes a replica that refuses writes, and a master again', async (t) => {
  const { kit, change, works, add } = await scene(t);
  const admin = kit.redis.client();
  await admin.call('REPLICAOF', '127.0.0.1', '1');
  change(2);
  await until(async () => !(await add('read-only')), { what: 'the refusal of a job' });
  await admin.call('REPLICAOF', 'NO', 'ONE');
  await works(3);
  t.is(kit.tables.addresses.rows.size, WORKLOADS);
});

test('Redis hangs for longer than a lease lives', async (t) => {
  const { kit, change, works } = await scene(t);
  kit.redis.pause();
  change(2);
  // The test needs a pause longer than a command's time limit and a lease's life.
  await new Promise((resolve) => setTimeout(resolve, 11_000));
  kit.redis.resume();
  await works(3);
  t.is(kit.tables.addresses.rows.size, WORKLOADS);
});

const rootTest = process.getuid?.() === 0 ? test : test.skip;

rootTest('the disk of the append-only file is full, and has room again', async (t) => {
  const { kit, works, change, add } = await scene(t);
  const folder = join(dirname(kit.redis.socketPath), 'data');
  await kit.redis.kill();
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', folder]);
  t.teardown(() => execFileSync('umount', ['-l', folder]));
  await kit.redis.start();
  await works(2);
  writeFileSync(`${folder}/ballast`, '');
  t.throws(() => writeFileSync(`${folder}/ballast`, Buffer.alloc(4 * 1024 * 1024)), {
    message: /ENOSPC/,
  });
  change(3);
  let tried = 0;
  await until(async () => !(await add(`full-${(tried += 1)}`)), { what: 'the refusal of a job' });
  const { lines, check, text } = await watch(t, kit);
  await check.look();
  t.true(lines.some((line) => line['message'] === 'redis.append-only-file-not-written'));
  t.regex(await text(), /weft_redis_persistence_failed 1/);
  execFileSync('truncate', ['-s', '0', `${folder}/ballast`]);
  await works(4);
  await check.look();
  t.regex(await text(), /weft_redis_persistence_failed 0/);
});

/** Makes a check of the kit's Redis that runs on demand. */
async function watch(
  t: ExecutionContext,
  { redis }: { readonly redis: Pick<IngesterKit['redis'], 'config'> },
): Promise<{
  readonly check: ServerCheck;
  readonly clock: FakeClock;
  readonly lines: Record<string, unknown>[];
  readonly refused: string[];
  text(): Promise<string>;
}> {
  const { log, lines } = capturedLog();
  const client = createClient(redis.config('xds-ingester'), 'commands', 'check', log);
  t.teardown(() => client.disconnect());
  const metrics = new MetricRegistry();
  const refused: string[] = [];
  const clock = new FakeClock();
  const onEviction = (policy: string): void => void refused.push(policy);
  const check = new ServerCheck({ client, clock, log, metrics, onEviction });
  t.teardown(() => check.close());
  await until(() => client.status === 'ready', { what: 'the connection' });
  return { check, clock, lines, refused, text: () => metrics.render() };
}

test('an eviction policy that is set while all run is reported, and no reason to end', async (t) => {
  const redis = await startTestRedis(t);
  const { clock, lines, refused, text } = await watch(t, { redis });
  await until(async () => /weft_redis_evicts 0/.test(await text()), { what: 'the first look' });
  const admin = redis.client();
  await admin.config('SET', 'maxmemory-policy', 'allkeys-lru');
  await admin.config('SET', 'maxmemory', '1gb');
  await clock.advance(30_000);
  await until(async () => /weft_redis_evicts 1/.test(await text()), { what: 'the second look' });
  const told = (): boolean => lines.some((line) => line['policy'] === 'allkeys-lru');
  await until(told, { what: 'the line that names the policy' });
  t.regex(await text(), /weft_redis_memory_used_ratio 0\.00/);
  await admin.config('SET', 'maxmemory-policy', 'noeviction');
  await clock.advance(30_000);
  await until(async () => /weft_redis_evicts 0/.test(await text()), { what: 'the third look' });
  t.deepEqual(refused, []);
});
