/** Tests how long a stream lasts, and that its end makes a client lose or repeat nothing. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { status } from '@grpc/grpc-js';
import test from 'ava';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import { createControlPlaneKit } from '../../support/control-plane-kit.ts';
import { followDelta } from '../../support/delta-follower.ts';
import { manyResources, serveDelta } from '../../support/delta-server-kit.ts';
import { namesOf, openDeltaClient, openTestStream } from '../../support/delta-test-client.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeScratch } from '../../support/leftovers.ts';
import { nodeSubject } from '../../support/token-issuer.ts';
import { until } from '../../support/until.ts';

const BASE = `
apiVersion: v1
kind: Namespace
metadata: {name: demo}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: demo}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: demo}
spec: {ports: [{port: 80}]}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: only-client, namespace: demo}
spec: {rules: [{from: [{source: {serviceAccounts: [client]}}]}]}
`;

const SENT = {
  addresses: /weft_xds_resources_sent_total\{type="WDS"\} 2\n/,
  policies: /weft_xds_resources_sent_total\{type="WADS"\} 1\n/,
};

test('a stream ends at its greatest age, and the client resumes without being sent anything again', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start({ KEEPALIVE_MAX_SERVER_CONNECTION_AGE: '2s' });
  await kit.api.apply(BASE);
  const target = await kit.target();
  const follower = followDelta(t, () => openDeltaClient(target));
  await until(
    () =>
      follower.held.get(ADDRESS_TYPE)?.size === 2 &&
      follower.held.get(AUTHORIZATION_TYPE)?.size === 1,
    { what: 'the state' },
  );
  const sent = async (): Promise<readonly string[]> =>
    (await actor.metrics()).match(/^weft_xds_resources_sent_total.*$/gm) ?? [];
  const before = await sent();
  t.is(before.length, 2);
  const subscribed = follower.subscribed(AUTHORIZATION_TYPE);
  await until(
    () => follower.subscribed(AUTHORIZATION_TYPE) >= subscribed + 3 && follower.client.live,
    { what: 'three more streams' },
  );
  t.deepEqual(await sent(), before);
  t.is(follower.held.get(ADDRESS_TYPE)?.size, 2);
  t.regex(await actor.metrics(), /weft_xds_streams_ended_total\{reason="age"\} [1-9]/);
  // On a busy machine the age of a connection may end a stream first.
  const ends = follower.lines.filter(({ message }) => message === 'xds.stream-ended');
  t.true(ends.some((line) => line['reason'] === 'Complete'));

  // Changes and removals between two streams arrive.
  await kit.api.manifests('delete', 'kind: Service\nmetadata: {name: api, namespace: demo}');
  await until(() => follower.held.get(ADDRESS_TYPE)?.size === 1, { what: 'the removal' });
  t.deepEqual(await sent(), before);
});

test('the greatest age is spread by a tenth', async (t) => {
  const clock = new FakeClock();
  const { delta, target } = await serveDelta(t, new Map(), { clock, maxStreamAgeMs: 600_000 });
  const streams = Array.from({ length: 20 }, () => openTestStream(t, target));
  for (const stream of streams) {
    stream.open(ADDRESS_TYPE);
    stream.ack(await stream.response(ADDRESS_TYPE, 0));
  }
  await until(
    () =>
      [...delta.streams()].every(
        ({ subscriptions }) => subscriptions[ADDRESS_TYPE]?.outstanding === false,
      ),
    { what: 'their acknowledgements' },
  );
  await clock.advance(539_999);
  t.is(delta.size, 20);
  await clock.advance(120_001);
  await until(() => streams.every((stream) => stream.ended() === 'end'), { what: 'their ends' });
  await until(() => delta.size === 0, { what: 'the streams to be let go' });
});

test('a stream ends when its token is no longer valid; a new token resumes, the old one is refused', async (t) => {
  const clock = new FakeClock();
  const held = new Map([
    [ADDRESS_TYPE, manyResources(2, 100)],
    [AUTHORIZATION_TYPE, manyResources(1, 100)],
  ]);
  const { delta, issuer, target, open, metrics } = await serveDelta(t, held, { clock });
  const mint = (): Promise<string> =>
    issuer.mint(nodeSubject('node-1'), { issuedAtMs: clock.now(), lifetimeMs: 600_000 });
  const tokenFile = join(await makeScratch('token'), 'token');
  const old = await mint();
  await writeFile(tokenFile, old);
  const follower = followDelta(t, () => open(tokenFile));
  await until(
    () =>
      follower.client.live &&
      [...delta.streams()].every(({ subscriptions }) =>
        [ADDRESS_TYPE, AUTHORIZATION_TYPE].every(
          (type) => subscriptions[type]?.outstanding === false,
        ),
      ),
    { what: 'the first stream, and its acknowledgements' },
  );
  await clock.advance(300_000);
  await writeFile(tokenFile, await mint());
  t.is(follower.subscribed(AUTHORIZATION_TYPE), 1);
  await clock.advance(310_000);
  await until(() => follower.subscribed(AUTHORIZATION_TYPE) === 2 && follower.client.live, {
    what: 'the second stream',
  });
  const text = await metrics();
  t.regex(text, /weft_xds_streams_ended_total\{reason="identity-expired"\} 1\n/);
  t.regex(text, SENT.addresses);
  t.regex(text, SENT.policies);

  const late = openTestStream(t, { ...target, token: old });
  late.open(ADDRESS_TYPE);
  const end = await until(late.ended, { what: 'the refusal of the old token' });
  t.is(end === 'end' ? -1 : end.code, status.UNAUTHENTICATED);
  t.regex(end === 'end' ? '' : end.details, /it expired at/);
});

test('a hundred calls without a token keep no node out', async (t) => {
  const kit = await createControlPlaneKit(t);
  const actor = await kit.start();
  const nobody = await kit.target(null);
  const calls = Array.from({ length: 100 }, () => openTestStream(t, nobody));
  for (const call of calls) call.open(ADDRESS_TYPE);
  const nodes = await Promise.all(
    Array.from({ length: 20 }, async () => openTestStream(t, await kit.target())),
  );
  for (const node of nodes) node.open(ADDRESS_TYPE);
  for (const node of nodes) t.deepEqual(namesOf(await node.response(ADDRESS_TYPE, 0)), []);
  await until(() => calls.every((call) => call.ended() !== null), { what: 'the refusals' });
  t.regex(await actor.metrics(), /weft_xds_streams_refused_total\{reason="identity"\} 100/);
});
