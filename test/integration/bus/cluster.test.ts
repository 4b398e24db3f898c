/** Tests the bus over a Redis Cluster of three masters and three replicas, with TLS and the users of the roles. */
import test from 'ava';
import type { ExecutionContext } from 'ava';
import {
  SIGNED_BOARD,
  boards,
  certificateSign,
  proxyPresenceSample,
  proxyPresenceSchema,
} from '../../../lib/bus/catalog.ts';
import { PROXIES } from '../../../lib/bus/keys.ts';
import { parseRedisUrl } from '../../../lib/bus/config.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import { definition as evaluator } from '../../../services/policy-evaluator/policy-evaluator-actor.ts';
import { actorContext } from '../../support/actor-context.ts';
import { TableCopy, bytes, heldLease, openBus } from '../../support/bus.ts';
import { createKitOver, serveWorkload } from '../../support/ingester-kit.ts';
import { startClusterRedis } from '../../support/redis-cluster.ts';
import type { ClusterRedis } from '../../support/redis-cluster.ts';
import { until } from '../../support/until.ts';

/** The number of entries that the promoted replica has never received. */
const LAG = 1_000;
const NODE = { node: 'node-1' } as const;

test('a lagging replica of the cluster is promoted under churn: readers end equal to the writer, jobs go on', async (t) => {
  t.timeout(180_000);
  const redis = await startClusterRedis(t, { tls: true });
  const kit = await createKitOver(t, redis);
  const second = new TableCopy();
  openBus(t, redis.config('node-proxy.node-2'), 'node-proxy-2').bus.reader(
    'addresses',
    'mesh',
    second,
  );
  const jobs = signingJobs(t, redis);
  const uid = (index: number): string => `uid-${index}`;
  for (let index = 0; index < LAG; index += 1) serveWorkload(kit.ads, uid(index), '1');
  await kit.start();
  await kit.holds(
    'addresses',
    Array.from({ length: LAG }, (_, index) => uid(index)),
  );
  await jobs.done('before');
  const { server: master } = await redis.masterOf('mesh');
  await redis.cutReplica(master);
  for (let index = 0; index < LAG; index += 1) {
    serveWorkload(kit.ads, uid(index), '2', `10.1.${index >> 8}.${index & 255}`);
    if (index % 50 === 49) kit.ads.push();
  }
  const served = (): ReadonlyMap<string, { readonly bytes: Uint8Array | null }> =>
    kit.ads.resources.get(ADDRESS_TYPE) ?? new Map();
  const wanted = (copy: TableCopy): boolean =>
    copy.rows.size === served().size &&
    [...served()].every(
      ([key, row]) => copy.rows.get(key) === Buffer.from(row.bytes ?? []).toString(),
    );
  await until(() => wanted(kit.tables.addresses), { what: 'the changes', timeoutMs: 20_000 });
  await master.kill();
  for (let index = 0; index < 50; index += 1)
    serveWorkload(kit.ads, uid(index), '3', `10.2.0.${index}`);
  kit.ads.push();
  await until(async () => (await redis.masterOf('mesh')).server === redis.replicaOf(master), {
    what: 'the replica to be promoted',
    timeoutMs: 60_000,
  });
  await until(() => wanted(kit.tables.addresses) && wanted(second), {
    what: 'both readers to equal what is served',
    timeoutMs: 60_000,
  });
  t.is(second.rows.size, LAG);
  await jobs.done('after');
});

test('a slot moves to another master while its table is written and its queue used', async (t) => {
  t.timeout(120_000);
  const redis = await startClusterRedis(t);
  const agent = openBus(t, redis.config('node-agent.node-1'), 'node-agent').bus;
  const lease = await heldLease(agent, 'agent', NODE);
  const writer = agent.writer('enrolments', NODE, lease);
  await writer.replaceAll(
    Array.from({ length: 2_000 }, (_, i) => [`old-${i}`, bytes('x'.repeat(64))]),
  );
  const copy = new TableCopy();
  openBus(t, redis.config('control-plane'), 'control-plane').bus.reader('enrolments', NODE, copy);
  const jobs = signingJobs(t, redis);
  await jobs.done('before');
  const standingIsIntact = () =>
    until(async () => (await writer.standing()) === 'intact', { what: 'the table as it was left' });
  const enough = new AbortController();
  t.teardown(() => enough.abort());
  let written = 0;
  let refused = 0;
  const write = (async () => {
    while (!enough.signal.aborted) {
      const changes = [{ key: `new-${written % 500}`, value: bytes(String(written)) }];
      try {
        await writer.apply(changes);
        written += 1;
      } catch (error) {
        refused += 1;
        t.log(String(error));
        // As the table's owner does after an unclear outcome.
        if (!(await standingIsIntact())) throw error;
      }
    }
  })();
  await until(() => written > 50, { what: 'changes before the move' });
  const { server: from, slot } = await redis.masterOf('node-1');
  const to = redis.servers.slice(0, 3).find((one) => one !== from);
  if (to === undefined) throw new Error('no other master');
  const present = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus.presence(
    PROXIES,
    NODE,
    proxyPresenceSchema,
  );
  const during: Promise<void>[] = [];
  await redis.moveSlot(slot, from, to, async () => {
    // Half of the keys have moved: they get ASK, and steps that touch both halves get TRYAGAIN until the move is done.
    during.push(jobs.done('during'));
    await until(() => present.announce('p-1', proxyPresenceSample).then(() => true), {
      what: 'the presence',
    });
    t.deepEqual([...(await present.members(60_000)).keys()], ['p-1']);
    await until(() => refused > 0, { what: 'a step that was refused', timeoutMs: 20_000 });
  });
  await Promise.all(during);
  const moved = written;
  await until(() => written > moved + 50, { what: 'changes after the move' });
  enough.abort();
  await write;
  await jobs.done('after');
  t.is((await redis.masterOf('node-1')).server, to);
  const all = await writer.readAll();
  t.is(all.size, 2_000 + Math.min(500, written));
  await until(
    () =>
      copy.rows.size === all.size &&
      [...all].every(([key, value]) => copy.rows.get(key) === Buffer.from(value).toString()),
    { what: 'the reader to equal the writer' },
  );
  await refusesAReplicaThatEvicts(t, redis);
});

/** A single evicting server is enough for a refusal, even a replica, because it may be promoted. */
async function refusesAReplicaThatEvicts(t: ExecutionContext, redis: ClusterRedis): Promise<void> {
  await redis.servers.at(-1)?.client.config('SET', 'maxmemory-policy', 'allkeys-lru');
  const actor = evaluator.create(evaluator.config.parse(redis.environment('policy-evaluator')));
  const { context, failures } = actorContext('policy-evaluator', null);
  t.teardown(() => actor.stop('failed'));
  await actor.start(context);
  await until(() => failures.length > 0, { what: 'the refusal' });
  t.regex(String(failures[0]), /maxmemory-policy allkeys-lru.*noeviction/);
}

test('a URL names servers of a cluster', (t) => {
  t.deepEqual(parseRedisUrl('rediss+cluster://a:7000,[fd00::1],b'), {
    kind: 'cluster',
    nodes: [
      { host: 'a', port: 7_000 },
      { host: 'fd00::1', port: 6_379 },
      { host: 'b', port: 6_379 },
    ],
    tls: true,
  });
  for (const url of ['redis+cluster://', 'redis+cluster://u:p@a', 'redis+cluster://a/0']) {
    t.throws(() => parseRedisUrl(url), { message: /redis\+cluster/ }, url);
  }
});

/** Starts a proxy of node-1 that requests certificates and a fetcher that answers, each as its own user. */
function signingJobs(
  t: ExecutionContext,
  redis: ClusterRedis,
): { done(id: string): Promise<void> } {
  const fetcher = openBus(t, redis.config('cert-fetcher.node-1'), 'cert-fetcher').bus;
  const proxy = openBus(t, redis.config('node-proxy.node-1'), 'node-proxy').bus;
  const { body, sample } = boards.signed;
  const results = fetcher.results(SIGNED_BOARD, NODE, body);
  fetcher.consume(certificateSign, NODE, { concurrency: 4 }, (_job, { id }) =>
    results.put(id, sample, 60_000),
  );
  const queue = proxy.queue(certificateSign, NODE);
  const answers = proxy.results(SIGNED_BOARD, NODE, body);
  return {
    done: async (id) => {
      await until(() => queue.add(id, certificateSign.sample).then(() => true), {
        what: `job ${id}`,
        timeoutMs: 30_000,
      });
      const answer = await answers.wait(id, 30_000);
      if (answer === null) throw new Error(`job ${id} got no answer`);
    },
  };
}
