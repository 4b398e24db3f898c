import test from 'ava';
import { proxyPresenceSample, proxyPresenceSchema } from '../../../lib/bus/catalog.ts';
import { PROXIES, presenceKey } from '../../../lib/bus/keys.ts';
import { PRESENCE_KEPT_MS, PRESENCE_MAX } from '../../../lib/bus/limits.ts';
import { openBus } from '../../support/bus.ts';
import { startTestRedis } from '../../support/redis.ts';
import { until } from '../../support/until.ts';

const scope = { node: 'node-1' } as const;
const role = 'node-proxy.node-1';

test('members see each other while they say that they are there', async (t) => {
  const redis = await startTestRedis(t);
  const [one, two] = ['one', 'two'].map((name) =>
    openBus(t, redis.config(role), name).bus.presence(PROXIES, scope, proxyPresenceSchema),
  );
  const other = openBus(t, redis.config('node-proxy.node-2'), 'other').bus.presence(
    PROXIES,
    { node: 'node-2' },
    proxyPresenceSchema,
  );
  const draining = { ...proxyPresenceSample, state: 'draining' as const };
  // Each bus has a connection of its own.
  await until(() => one?.announce('one', proxyPresenceSample).then(() => true) ?? false, {
    what: 'Redis',
  });
  await until(() => two?.announce('two', draining).then(() => true) ?? false, { what: 'Redis' });
  await until(() => other.members(60_000).then(() => true), { what: 'Redis' });
  const members = new Map([
    ['one', proxyPresenceSample],
    ['two', draining],
  ]);
  const seenBy = async (list: typeof one) =>
    new Map([...((await list?.members(60_000)) ?? [])].toSorted(([a], [b]) => a.localeCompare(b)));
  t.deepEqual(await seenBy(two), members);
  t.deepEqual(await seenBy(one), members);
  t.is((await other.members(60_000)).size, 0);
  await one?.leave('one');
  t.deepEqual(
    [...((await two?.members(60_000)) ?? [])].map(([name]) => name),
    ['two'],
  );
});

test('who was silent for too long, or cannot be read, is not there, and is forgotten in the end', async (t) => {
  const redis = await startTestRedis(t);
  const client = redis.client();
  const { bus, lines } = openBus(t, redis.config(role), 'one');
  const presence = bus.presence(PROXIES, scope, proxyPresenceSchema);
  const key = presenceKey(redis.prefix, PROXIES, scope);
  await until(() => presence.announce('one', proxyPresenceSample).then(() => true), {
    what: 'Redis',
  });
  const at = (ago: number, body: unknown = proxyPresenceSample): string =>
    JSON.stringify({ at: Date.now() - ago, body });
  await client.hset(key, {
    silent: at(50_000),
    dead: at(PRESENCE_KEPT_MS + 60_000),
    'of the future': at(-3_600_000),
    newer: at(0, { ...proxyPresenceSample, state: 'resting' }),
    broken: '{',
  });
  t.deepEqual([...(await presence.members(45_000)).keys()], ['one']);
  t.deepEqual((await client.hkeys(key)).sort(), ['one', 'silent']);
  t.true((await client.pttl(key)) > 0);
  t.is(lines.filter((line) => line['message'] === 'bus.presence-unreadable').length, 2);
});

test('no more members are read than the bound', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config(role), 'one');
  const presence = bus.presence(PROXIES, scope, proxyPresenceSchema);
  await until(() => presence.announce('one', proxyPresenceSample).then(() => true), {
    what: 'Redis',
  });
  const row = JSON.stringify({ at: Date.now(), body: proxyPresenceSample });
  const rows = Array.from({ length: PRESENCE_MAX + 5 }, (_, n) => [`m${n}`, row] as const);
  await redis.client().hset(presenceKey(redis.prefix, PROXIES, scope), Object.fromEntries(rows));
  t.is((await presence.members(60_000)).size, PRESENCE_MAX);
});

test('without Redis the list cannot be had, and says so', async (t) => {
  const redis = await startTestRedis(t);
  const { bus } = openBus(t, redis.config(role), 'one');
  const presence = bus.presence(PROXIES, scope, proxyPresenceSchema);
  await until(() => presence.announce('one', proxyPresenceSample).then(() => true), {
    what: 'Redis',
  });
  await bus.close();
  await t.throwsAsync(presence.members(1_000), { code: 'BUS_UNAVAILABLE' });
  await t.throwsAsync(presence.announce('one', proxyPresenceSample), { code: 'BUS_UNAVAILABLE' });
  await t.throwsAsync(presence.leave('one'), { code: 'BUS_UNAVAILABLE' });
});
