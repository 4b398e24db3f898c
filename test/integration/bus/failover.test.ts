/** Tests Redis as in production: behind sentinels, over TLS, and without eviction. */
import { execFileSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { certificateSign } from '../../../lib/bus/catalog.ts';
import { parseRedisUrl } from '../../../lib/bus/config.ts';
import { definition as evaluator } from '../../../services/policy-evaluator/policy-evaluator-actor.ts';
import { actorContext } from '../../support/actor-context.ts';
import { TableCopy, heldLease, openBus } from '../../support/bus.ts';
import { createKitOver, serveWorkload } from '../../support/ingester-kit.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { ownPort } from '../../support/ports.ts';
import { clientOf, startSentinelRedis, startServer } from '../../support/redis-sentinel.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

/** The number of entries that the promoted replica has never received. */
const LAG = 1_000;

test('a replica that lags is promoted under churn: every reader ends equal to the writer', async (t) => {
  t.timeout(120_000);
  const redis = await startSentinelRedis(t);
  const kit = await createKitOver(t, redis);
  const second = new TableCopy();
  openBus(t, redis.config(), 'node-proxy-2').bus.reader('addresses', 'mesh', second);
  const uid = (index: number): string => `uid-${index}`;
  for (let index = 0; index < LAG; index += 1) serveWorkload(kit.ads, uid(index), '1');
  await kit.start();
  const all = (): string[] => Array.from({ length: LAG }, (_, index) => uid(index));
  await kit.holds('addresses', all());
  await redis.cutReplica();
  // Every row changes, in many pushes, while the replica does not follow.
  for (let index = 0; index < LAG; index += 1) {
    serveWorkload(kit.ads, uid(index), '2', `10.1.${index >> 8}.${index & 255}`);
    if (index % 50 === 49) kit.ads.push();
  }
  const wanted = (copy: TableCopy): boolean =>
    copy.rows.size === served().size &&
    [...served()].every(
      ([key, { bytes }]) => copy.rows.get(key) === Buffer.from(bytes ?? []).toString(),
    );
  const served = (): ReadonlyMap<string, { readonly bytes: Uint8Array | null }> =>
    kit.ads.resources.get(ADDRESS_TYPE) ?? new Map();
  await until(() => wanted(kit.tables.addresses), { what: 'the changes', timeoutMs: 20_000 });
  await redis.killMaster();
  // The writer goes on while there is no master.
  for (let index = 0; index < 50; index += 1)
    serveWorkload(kit.ads, uid(index), '3', `10.2.0.${index}`);
  kit.ads.push();
  await redis.promoted();
  await until(() => wanted(kit.tables.addresses) && wanted(second), {
    what: 'both readers to equal what is served',
    timeoutMs: 60_000,
  });
  t.is(second.rows.size, LAG);
});

test('the bus speaks TLS and trusts the given root alone', async (t) => {
  const dir = await makeScratch('redis-tls');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const openssl = (...args: string[]): void =>
    void execFileSync('openssl', args, { cwd: dir, stdio: 'ignore' });
  const request = [
    'req',
    '-x509',
    '-newkey',
    'ec',
    '-pkeyopt',
    'ec_paramgen_curve:prime256v1',
    '-nodes',
    '-days',
    '1',
  ];
  const names = ['-subj', '/CN=redis', '-addext', 'subjectAltName=DNS:localhost'];
  openssl(...request, '-keyout', 'key.pem', '-out', 'cert.pem', ...names);
  openssl(...request, '-keyout', 'other.key', '-out', 'other.pem', ...names);
  const port = await ownPort();
  startServer(t, dir, [
    'port 0',
    `tls-port ${port}`,
    `tls-cert-file ${dir}/cert.pem`,
    `tls-key-file ${dir}/key.pem`,
    `tls-ca-cert-file ${dir}/cert.pem`,
    'tls-auth-clients no',
  ]);
  const config = (caFile: string) => ({
    endpoint: parseRedisUrl(`rediss://localhost:${port}`),
    username: null,
    passwordFile: null,
    caFile: join(dir, caFile),
    prefix: 'tls',
  });
  const { bus } = openBus(t, config('cert.pem'));
  await until(() => bus.connected, { what: 'Redis over TLS' });
  const stranger = openBus(t, config('other.pem'), 'stranger');
  await until(() => stranger.lines.some(({ error }) => /certificate/i.test(String(error))), {
    what: 'the refusal of the certificate',
  });
  t.false(stranger.bus.connected);
});

test('an actor does not start with a Redis that evicts, and says what to set', async (t) => {
  const redis = await startTestRedis(t);
  await redis.client().config('SET', 'maxmemory-policy', 'allkeys-lru');
  const config = evaluator.config.parse(redis.environment('policy-evaluator'));
  const actor = evaluator.create(config);
  const { context, failures } = actorContext('policy-evaluator', null);
  t.teardown(() => actor.stop('failed'));
  await actor.start(context);
  await until(() => failures.length > 0, { what: 'the refusal' });
  t.regex(String(failures[0]), /maxmemory-policy allkeys-lru.*noeviction/);
});

test('no step touches keys of two slots: a server in cluster mode takes all of them', async (t) => {
  const dir = await makeScratch('redis-cluster');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const port = await ownPort();
  startServer(t, dir, [`port ${port}`, 'cluster-enabled yes']);
  const raw = clientOf(t, port);
  await until(() => raw.status === 'ready', { what: 'the server' });
  await raw.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383');
  await until(async () => /cluster_state:ok/.test(await raw.cluster('INFO')), {
    what: 'the slots',
  });
  const { bus } = openBus(t, {
    endpoint: { kind: 'tcp', host: '127.0.0.1', port, tls: false },
    username: null,
    passwordFile: null,
    caFile: null,
    prefix: 'weft',
  });
  await until(() => bus.connected, { what: 'the bus' });
  const node = { node: 'node-1' } as const;
  const lease = await heldLease(bus, 'ingest', 'mesh');
  const writer = bus.writer('addresses', 'mesh', lease);
  await writer.replaceAll([['a', Buffer.from('1')]]);
  await writer.apply([{ key: 'b', value: Buffer.from('2') }]);
  const copy = new TableCopy();
  bus.reader('addresses', 'mesh', copy);
  await until(() => copy.rows.size === 2, { what: 'the rows' });
  const done: string[] = [];
  bus.consume(certificateSign, node, { concurrency: 1 }, ({ identity }) => {
    done.push(identity);
    return Promise.resolve();
  });
  const queue = bus.queue(certificateSign, node);
  await until(() => queue.add('p.1.2', certificateSign.sample).then(() => true), {
    what: 'the job',
  });
  await until(() => done.length === 1, { what: 'the job' });
  t.true((await bus.queueCounts(['mesh', node])).length >= 3);
});
