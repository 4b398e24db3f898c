/** Tests a delta server at its bounds: answers in parts, and clients that never acknowledge. */
import { status } from '@grpc/grpc-js';
import test from 'ava';
import { systemClock } from '../../../lib/clock/clock.ts';
import type { DeltaServer } from '../../../lib/xds/delta-server.ts';
import { MAX_OWED_NAMES } from '../../../lib/xds/delta-session.ts';
import { RESOURCE_TYPES } from '../../../lib/xds/subscriptions.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { manyResources, serveDelta } from '../../support/delta-server-kit.ts';
import { openTestStream } from '../../support/delta-test-client.ts';
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
  t.regex(await metrics(), /pilot_xds_pushes\{type="WDS"\} 4\n/);
});

test('a policy alone waits for no address', async (t) => {
  const { target } = await serveDelta(t, new Map([[AUTHORIZATION_TYPE, manyResources(1, 100)]]));
  const stream = openTestStream(t, target);
  stream.open(AUTHORIZATION_TYPE);
  t.is((await stream.response(AUTHORIZATION_TYPE, 0)).resources.length, 1);
});

test('a client that acknowledges nothing is ended before what it is owed grows without bound', async (t) => {
  const { target, delta, metrics } = await serveDelta(
    t,
    new Map([[ADDRESS_TYPE, manyResources(1, 100)]]),
  );
  const silent = openTestStream(t, target);
  const sound = openTestStream(t, target);
  for (const stream of [silent, sound]) stream.open(ADDRESS_TYPE);
  await silent.response(ADDRESS_TYPE, 0);
  sound.ack(await sound.response(ADDRESS_TYPE, 0));
  await until(() => delta.streams().some(acknowledged), { what: 'the ACK' });

  // Pods that were added and removed while the client was silent.
  const gone = (from: number, to: number): ReadonlySet<string> =>
    new Set(Array.from({ length: to - from }, (_, index) => `gone-${from + index}`));
  delta.push(new Map([[ADDRESS_TYPE, gone(0, MAX_OWED_NAMES)]]));
  t.is(delta.streams().length, 2);
  t.is(silent.ended(), null);
  delta.push(new Map([[ADDRESS_TYPE, gone(MAX_OWED_NAMES, MAX_OWED_NAMES + 1)]]));
  const end = await until(silent.ended, { what: 'the end of the silent stream' });
  t.is(end === 'end' ? -1 : end.code, status.RESOURCE_EXHAUSTED);
  t.regex(end === 'end' ? '' : end.details, /no response is acknowledged/);
  t.regex(await metrics(), /weft_xds_streams_refused_total\{reason="unacknowledged"\} 1/);
  t.is(sound.ended(), null);
  await until(() => delta.streams().length === 1, { what: 'the silent stream to be let go' });
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
  t.is(delta.streams().length, 0);
});

function acknowledged(view: ReturnType<DeltaServer['streams']>[number]): boolean {
  return view.subscriptions[ADDRESS_TYPE]?.acks === 1;
}
