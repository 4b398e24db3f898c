import test from 'ava';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { encodeService, encodeWorkload } from '../../../lib/xds/resources/address.ts';
import { certFetcherConfig } from '../../../services/cert-fetcher/config.ts';
import { NodeIdentities } from '../../../services/cert-fetcher/node-identities.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { keptLog } from '../../support/actor-context.ts';
import { service, workload } from '../../support/workloads.ts';

const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
const row = (key: string, node: string, account = 'web') => ({
  key,
  value: encodeWorkload(workload({ uid: key, node, serviceAccount: account })),
});

test('only the identities of the own node are kept, counted by workload', async (t) => {
  const { log, lines } = keptLog('test');
  let synced = 0;
  const identities = new NodeIdentities('node-1', log, () => (synced += 1));
  await identities.mirror.onReset();
  await identities.mirror.onEntries([
    row('a', 'node-1'),
    row('b', 'node-1'),
    row('c', 'node-2', 'api'),
    { key: 's', value: encodeService(service()) },
    { key: 'broken', value: Buffer.from('ffff', 'hex') },
  ]);
  t.false(identities.synced);
  t.false(identities.has(WEB), 'not in force before the copy is complete');
  await identities.mirror.onSynced();
  t.deepEqual(
    [identities.synced, identities.size, synced, identities.has(WEB)],
    [true, 1, 1, true],
  );
  t.is(lines.length, 1);
  t.is(lines[0]?.['key'], 'broken');
  await identities.mirror.onChanges([{ key: 'a', value: null }]);
  t.true(identities.has(WEB));
  await identities.mirror.onChanges([row('b', 'node-2', 'web')]);
  t.false(identities.has(WEB));
  await identities.mirror.onChanges([row('c', 'node-1', 'api')]);
  t.true(identities.has('spiffe://cluster.local/ns/demo/sa/api'));
});

test('a new copy replaces the old one when it is complete', async (t) => {
  const identities = new NodeIdentities('node-1', keptLog('test').log, () => undefined);
  await identities.mirror.onReset();
  await identities.mirror.onEntries([row('a', 'node-1')]);
  await identities.mirror.onSynced();
  await identities.mirror.onReset();
  t.true(identities.has(WEB));
  await identities.mirror.onSynced();
  t.false(identities.has(WEB));
});

test('a job waits a moment for its identity to appear', async (t) => {
  const clock = new FakeClock();
  const identities = new NodeIdentities('node-1', keptLog('test').log, () => undefined);
  const early = identities.appears(WEB, 300, clock);
  await identities.mirror.onReset();
  await identities.mirror.onEntries([row('a', 'node-1')]);
  await identities.mirror.onSynced();
  t.true(await early);
  t.true(await identities.appears(WEB, 300, clock));
  const never = identities.appears('spiffe://cluster.local/ns/demo/sa/none', 300, clock);
  const later = identities.appears('spiffe://cluster.local/ns/demo/sa/api', 300, clock);
  await identities.mirror.onChanges([row('b', 'node-1', 'api')]);
  t.true(await later);
  await clock.advance(300);
  t.false(await never);
  t.is(clock.pending, 0);
});

test("the configuration has upstream's names and defaults", (t) => {
  const config = certFetcherConfig.parse({
    REDIS_URL: 'unix:///run/redis.sock',
    SECRET_TTL: '60s',
    CA_HEADER_X_Team: 'mesh',
  });
  t.is(config.ca.address, 'https://localhost:15012');
  t.is(config.lifetimeMs, 60_000);
  t.deepEqual(config.ca.headers, { x_team: 'mesh' });
  t.true(Object.isFrozen(config.ca));
  const cluster = certFetcherConfig.parse({
    REDIS_URL: 'unix:///run/redis.sock',
    KUBERNETES_SERVICE_HOST: '10.0.0.1',
  });
  t.is(cluster.ca.address, 'https://istiod.istio-system.svc:15012');
  t.is(cluster.lifetimeMs, 86_400_000);
  t.is(cluster.ca.clusterId, 'Kubernetes');
  const named = certFetcherConfig.parse({
    REDIS_URL: 'unix:///run/redis.sock',
    CLUSTER_ID: 'c1',
    ISTIO_META_CLUSTER_ID: 'c2',
  });
  t.is(named.ca.clusterId, 'c2');
});

for (const [name, value] of [
  ['CA_ADDRESS', 'http://ca:15010'],
  ['SECRET_TTL', '100ms'],
  ['CA_HEADER_bad name', 'x'],
] as const) {
  test(`${name}=${value} is refused`, (t) => {
    t.throws(
      () => certFetcherConfig.parse({ REDIS_URL: 'unix:///run/redis.sock', [name]: value }),
      { instanceOf: MeshError, message: new RegExp(name) },
    );
  });
}
