import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { acceptHeld, readHeld } from '../../../services/cli/held-removals.ts';
import { bareEnvironment } from '../../support/bare-environment.ts';
import { openBus } from '../../support/bus.ts';
import { createIngesterKit, servePolicy, serveWorkload } from '../../support/ingester-kit.ts';
import type { IngesterKit } from '../../support/ingester-kit.ts';
import { until } from '../../support/until.ts';

const HOST = fileURLToPath(new URL('../../support/ingester-process.ts', import.meta.url));

function startProcess(
  t: ExecutionContext,
  kit: IngesterKit,
  environment: Readonly<Record<string, string>> = {},
): { child: ChildProcess; output: () => string } {
  const child = spawn(process.execPath, [HOST], {
    env: bareEnvironment({
      ...kit.redis.environment('xds-ingester'),
      XDS_ADDRESS: kit.ads.address,
      XDS_ROOT_CA: kit.ads.rootPath,
      AUTH_TOKEN: 'token-1',
      ...environment,
    }),
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  child.stdout?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()));
  t.teardown(() => child.kill('SIGKILL'));
  return { child, output: () => output };
}

test.serial('killed with SIGKILL and started again, it goes on where Redis is', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const first = startProcess(t, kit);
  await kit.holds('addresses', ['uid-1']);
  first.child.kill('SIGKILL');
  await once(first.child, 'exit');
  serveWorkload(kit.ads, 'uid-2', '1');
  startProcess(t, kit);
  await kit.holds('addresses', ['uid-1', 'uid-2']);
  t.deepEqual(kit.ads.streams.at(-1)?.resumed(ADDRESS_TYPE), { 'uid-1': '1' });
  t.is(kit.tables.addresses.epochs.length, 1);
});

test.serial(
  'a standby goes on where a killed leader was, with what came and went meanwhile',
  async (t) => {
    const kit = await createIngesterKit(t);
    serveWorkload(kit.ads, 'stays', '1');
    serveWorkload(kit.ads, 'changes', '1');
    serveWorkload(kit.ads, 'goes', '1');
    const leader = startProcess(t, kit);
    await kit.holds('addresses', ['stays', 'changes', 'goes']);
    const standby = startProcess(t, kit);
    await until(() => kit.ads.streams[1]?.acks(ADDRESS_TYPE) === 1, {
      what: 'the standby to hold the state',
      timeoutMs: 20_000,
    });
    leader.child.kill('SIGKILL');
    await once(leader.child, 'exit');
    serveWorkload(kit.ads, 'changes', '2', '10.0.0.2');
    serveWorkload(kit.ads, 'comes', '1');
    kit.ads.remove(ADDRESS_TYPE, 'goes');
    kit.ads.push();
    await kit.holds('addresses', ['stays', 'changes', 'comes']);
    t.is(kit.ads.streams.length, 2, 'the standby followed all the time');
    t.is(kit.tables.addresses.epochs.length, 1, 'nothing was replaced');
    t.true(standby.output().includes('"held":true'));
  },
);

test.serial(
  'a large removal is held through restarts, but no policy is, until an operator accepts it',
  async (t) => {
    const kit = await createIngesterKit(t);
    const uids = Array.from({ length: 100 }, (_, index) => `uid-${index}`);
    for (const uid of uids) serveWorkload(kit.ads, uid, '1');
    for (const name of ['a', 'b']) servePolicy(kit.ads, name, '1');
    const first = startProcess(t, kit);
    await kit.holds('addresses', uids);
    await kit.holds('authorizations', ['demo/a', 'demo/b']);
    for (const uid of uids.slice(0, 60)) kit.ads.remove(ADDRESS_TYPE, uid);
    for (const name of ['a', 'b']) kit.ads.remove(AUTHORIZATION_TYPE, `demo/${name}`);
    serveWorkload(kit.ads, 'uid-99', '2', '10.0.0.9');
    kit.ads.push();
    await kit.holds('authorizations', []);
    const { bus } = openBus(t, kit.redis.config('cli'), 'cli');
    await until(() => bus.connected, { what: 'Redis' });
    await until(async () => (await readHeld(bus))?.addresses === 60, { what: 'the hold' });
    t.is(kit.tables.addresses.rows.size, 100);
    first.child.kill('SIGKILL');
    await once(first.child, 'exit');
    const second = startProcess(t, kit);
    await until(
      () => kit.ads.streams.at(-1)?.acks(ADDRESS_TYPE) === 1 && kit.ads.streams.length > 1,
      {
        what: 'the next stream',
      },
    );
    t.is(kit.tables.addresses.rows.size, 100);
    const summary = await readHeld(bus);
    t.is(summary?.addresses, 60);
    t.is(await acceptHeld(bus, summary?.upTo ?? ''), 60);
    await kit.holds('addresses', uids.slice(60));
    t.is(await readHeld(bus), null);
    t.true(second.output().includes('removals.applied'));
  },
);

test.serial(
  'a large removal is applied when the control plane stood by it for the time',
  async (t) => {
    const kit = await createIngesterKit(t);
    const uids = Array.from({ length: 100 }, (_, index) => `uid-${index}`);
    for (const uid of uids) serveWorkload(kit.ads, uid, '1');
    const { output } = startProcess(t, kit, { WEFT_HOLD_REMOVALS: '1s' });
    await kit.holds('addresses', uids);
    for (const uid of uids.slice(0, 60)) kit.ads.remove(ADDRESS_TYPE, uid);
    kit.ads.push();
    await kit.holds('addresses', uids.slice(60));
    t.regex(output(), /removals\.held[^]*removals\.applied/);
  },
);

test.serial('SIGTERM ends it cleanly and frees the lease', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const { child, output } = startProcess(t, kit);
  await kit.holds('addresses', ['uid-1']);
  child.kill('SIGTERM');
  const [code] = (await once(child, 'close')) as [number | null];
  t.is(code, 0, output());
  t.is(await kit.redis.client().exists(`${kit.redis.prefix}:{mesh}:lease:ingest`), 0);
});

test.serial('SIGTERM ends it while Redis hangs', async (t) => {
  const kit = await createIngesterKit(t);
  serveWorkload(kit.ads, 'uid-1', '1');
  const { child, output } = startProcess(t, kit);
  await kit.holds('addresses', ['uid-1']);
  kit.redis.pause();
  child.kill('SIGTERM');
  const [code] = (await once(child, 'close')) as [number | null];
  t.is(code, 0, output());
});

test.serial('a wrong configuration is named in full and ends with 78', async (t) => {
  const kit = await createIngesterKit(t);
  const { child, output } = startProcess(t, kit, {
    REDIS_URL: 'ftp://x',
    XDS_ON_DEMAND: 'maybe',
    WEFT_REDIS_PREFX: 'a',
  });
  const [code] = (await once(child, 'close')) as [number | null];
  t.is(code, 78);
  t.true(output().includes('WEFT_REDIS_PREFIX'), output());
  for (const text of ['REDIS_URL must be unix', 'XDS_ON_DEMAND must be true or false']) {
    t.true(output().includes(text), output());
  }
});

test.serial('an invalid local file keeps it from starting and says where', async (t) => {
  const kit = await createIngesterKit(t);
  const { child, output } = startProcess(t, kit, {
    LOCAL_XDS: 'workloads:\n- namespace: shop\n  workloadIps: ["10.0.0.300"]\n',
  });
  const [code] = (await once(child, 'close')) as [number | null];
  t.is(code, 1);
  t.regex(output(), /LOCAL_XDS: workloads\[0\]\.workloadIps\[0\]: must be an IP address/);
});

test.serial('20,000 workloads pass through and the lease is kept', async (t) => {
  const kit = await createIngesterKit(t);
  for (let index = 0; index < 20_000; index += 1) {
    const ip = `10.${64 + (index >> 16)}.${(index >> 8) & 255}.${index & 255}`;
    serveWorkload(kit.ads, `uid-${index}`, '1', ip);
  }
  const { output } = startProcess(t, kit);
  await until(() => kit.tables.addresses.rows.size === 20_000, {
    what: 'all workloads',
    timeoutMs: 60_000,
  });
  t.false(output().includes('"held":false'));
});
