/** Tests a delta server at its bounds: answers in parts, and clients that never acknowledge. */
import { status } from '@grpc/grpc-js';
import test from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import { ACK_LIMIT_MS } from '../../../lib/xds/delta-server.ts';
import { RESOURCE_TYPES } from '../../../lib/xds/subscriptions.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { manyResources, serveDelta } from '../../support/delta-server-kit.ts';
import { plainResource } from '../../support/plain-resource.ts';
import { namesOf, openTestStream } from '../../support/delta-test-client.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { until } from '../../support/until.ts';

test('a client is complete with the last part of an answer, not with the first', async (t) => {
  const held = new Map([
    [ADDRESS_TYPE, manyResources(10, 1_000)],
    [AUTHORIZATION_TYPE, manyResources(1, 100)],
  ]);
  const { target, open, metrics } = await serveDelta(t, held, { maxResponseBytes: 3_000 });
  const { client, held: got } = followDelta(t, () => open(target.token ?? ''));
  const whenLive = new Promise<unknown>((resolve) => {
    client.onLive(() => resolve(RESOURCE_TYPES.map((type) => got.get(type)?.size)));
  });
  t.deepEqual(await whenLive, [10, 1]);
  t.regex(await metrics(), /pilot_xds_pushes\{type="WDS"\} 5\n/);
});

test('a policy alone waits for no address', async (t) => {
  const { target } = await serveDelta(t, new Map([[AUTHORIZATION_TYPE, manyResources(1, 100)]]));
  const stream = openTestStream(t, target);
  stream.open(AUTHORIZATION_TYPE);
  t.is((await stream.response(AUTHORIZATION_TYPE, 0)).resources.length, 1);
});

test('a client that never acknowledges is ended; it costs the others nothing', async (t) => {
  const clock = new FakeClock();
  const held = new Map([[ADDRESS_TYPE, new Map(manyResources(1, 100))]]);
  const { target, delta, metrics } = await serveDelta(t, held, { clock });
  const silent = openTestStream(t, target);
  const sound = openTestStream(t, target);
  for (const stream of [silent, sound]) stream.open(ADDRESS_TYPE);
  await silent.response(ADDRESS_TYPE, 0);
  sound.ack(await sound.response(ADDRESS_TYPE, 0));
  for (let round = 1; round <= 3; round += 1) {
    const name = `later-${round}`;
    held.get(ADDRESS_TYPE)?.set(name, plainResource(name, '1', new Uint8Array(10)));
    await delta.push(new Map([[ADDRESS_TYPE, new Set([name])]]));
    const response = await sound.response(ADDRESS_TYPE, round);
    t.deepEqual(namesOf(response), [name]);
    sound.ack(response);
  }
  await until(
    () => [...delta.streams()].some(({ subscriptions }) => subscriptions[ADDRESS_TYPE]?.acks === 4),
    {
      what: 'the ACK',
    },
  );
  t.is(silent.responses.length, 1);

  await clock.advance(ACK_LIMIT_MS + 20_000);
  const end = await until(silent.ended, { what: 'the end of the silent stream' });
  t.is(end === 'end' ? -1 : end.code, status.RESOURCE_EXHAUSTED);
  t.regex(end === 'end' ? '' : end.details, /was not acknowledged for 120 s/);
  t.regex(await metrics(), /weft_xds_streams_refused_total\{reason="unacknowledged"\} 1/);
  t.is(sound.ended(), null);
  await until(() => delta.size === 1, { what: 'the silent stream to be let go' });
});

test('clients that answer nothing hold one response each, and the others are sent everything', async (t) => {
  const held = new Map([[ADDRESS_TYPE, manyResources(64, 100_000)]]);
  const { target, open, delta } = await serveDelta(t, held, { pushThrottle: 2 });
  const stuck = Array.from({ length: 3 }, () => openTestStream(t, target));
  for (const stream of stuck) {
    stream.pause();
    stream.open(ADDRESS_TYPE);
    stream.open(AUTHORIZATION_TYPE);
  }
  await until(
    () =>
      [...delta.streams()].filter(({ subscriptions }) => subscriptions[ADDRESS_TYPE]?.outstanding)
        .length === 3,
    { what: 'a response for each' },
  );
  const { client, held: got } = followDelta(t, () => open(target.token ?? ''));
  await until(() => client.live, { what: 'the client that reads' });
  t.is(got.get(ADDRESS_TYPE)?.size, 64);
  for (const { subscriptions } of [...delta.streams()].slice(0, 3)) {
    t.true((subscriptions[ADDRESS_TYPE]?.owed ?? 0) > 50);
  }
});

test('a response is encoded once, whoever gets it, also while changes come in between', async (t) => {
  const held = new Map([[ADDRESS_TYPE, new Map(manyResources(3_000, 300))]]);
  const { target, delta, metrics } = await serveDelta(t, held);
  const streams = Array.from({ length: 5 }, () => openTestStream(t, target));
  const encoded = async (): Promise<number> =>
    Number(/weft_xds_responses_encoded_total\{type="WDS"\} (\d+)/.exec(await metrics())?.[1]);
  for (const stream of streams) {
    stream.open(ADDRESS_TYPE);
    for (let part = 0; part < 3; part += 1) stream.ack(await stream.response(ADDRESS_TYPE, part));
  }
  t.is(await encoded(), 3);
  held.get(ADDRESS_TYPE)?.set('name-7', plainResource('name-7', '2', new Uint8Array(10)));
  await delta.push(new Map([[ADDRESS_TYPE, new Set(['name-7'])]]));
  for (const stream of streams) {
    t.deepEqual(namesOf(await stream.response(ADDRESS_TYPE, 3)), ['name-7']);
  }
  t.is(await encoded(), 4);
  const late = openTestStream(t, target);
  late.open(ADDRESS_TYPE);
  for (let part = 0; part < 3; part += 1) late.ack(await late.response(ADDRESS_TYPE, part));
  t.is(late.responses.flatMap(namesOf).length, 3_000);
  // Only the part with the change is encoded anew.
  t.is(await encoded(), 5);
});

test('each response but the last of an answer says that more follows', async (t) => {
  const held = new Map([[ADDRESS_TYPE, manyResources(3, 1_000)]]);
  const { target } = await serveDelta(t, held, { maxResponseBytes: 1_500 });
  const stream = openTestStream(t, target);
  stream.open(ADDRESS_TYPE, { initialResourceVersions: { ghost: '1' } });
  const parts = [];
  for (let part = 0; part < 4; part += 1) {
    const response = await stream.response(ADDRESS_TYPE, part);
    parts.push(response);
    stream.ack(response);
  }
  t.deepEqual(
    parts.map(({ systemVersionInfo }) => systemVersionInfo.endsWith('+more')),
    [true, true, true, false],
  );
  t.deepEqual(
    parts.flatMap(({ removedResources }) => removedResources),
    ['ghost'],
  );
});

test('a stream whose token is verified when a drain begins is refused', async (t) => {
  let onRead = (): void => undefined;
  const now = (): number => {
    onRead();
    return systemClock.now();
  };
  const { target, delta } = await serveDelta(t, new Map(), { clock: { ...systemClock, now } });
  // The verification reads the time.
  onRead = () => delta.drain();
  const stream = openTestStream(t, target);
  stream.open(ADDRESS_TYPE);
  const end = await until(stream.ended, { what: 'the end of the stream' });
  t.is(end === 'end' ? -1 : end.code, status.UNAVAILABLE);
  t.is(end === 'end' ? '' : end.details, 'the server is draining');
  t.is(delta.size, 0);
});
