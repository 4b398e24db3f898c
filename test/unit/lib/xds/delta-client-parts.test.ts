import { status } from '@grpc/grpc-js';
import test from 'ava';
import { nodeMessage } from '../../../../lib/xds/node.ts';
import { nextAttempt } from '../../../../lib/xds/reconnect.ts';
import { Subscriptions, nackMessage } from '../../../../lib/xds/subscriptions.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../../lib/xds/type-urls.ts';
import { decodeResponse, encodeRequest } from '../../../../lib/xds/wire.ts';
import type { DeltaResponse } from '../../../../lib/xds/wire.ts';

const ended = (code: number, details = ''): Parameters<typeof nextAttempt>[0] => ({
  kind: 'status',
  code,
  details,
});

test('the pause before the next stream follows how the last one ended', (t) => {
  t.deepEqual(nextAttempt({ kind: 'not-established' }, 10), {
    reason: 'ConnectionError',
    sleepMs: 20,
    baseMs: 20,
  });
  t.is(nextAttempt({ kind: 'not-established' }, 12_000).sleepMs, 15_000);
  t.is(nextAttempt({ kind: 'not-established' }, 15_000).sleepMs, 15_000);
  for (const end of [
    ended(status.UNKNOWN),
    ended(status.CANCELLED),
    ended(status.DEADLINE_EXCEEDED),
    ended(status.UNAVAILABLE, 'transport is closing'),
    ended(status.UNAVAILABLE, 'error: received prior GOAWAY: code 0'),
  ]) {
    t.deepEqual(nextAttempt(end, 8_000), { reason: 'Reconnect', sleepMs: 10, baseMs: 10 });
  }
  for (const end of [ended(status.UNAVAILABLE, 'overloaded'), ended(status.INTERNAL)]) {
    t.deepEqual(nextAttempt(end, 40), { reason: 'Error', sleepMs: 80, baseMs: 80 });
  }
  t.deepEqual(nextAttempt({ kind: 'complete' }, 8_000), {
    reason: 'Complete',
    sleepMs: 10,
    baseMs: 10,
  });
});

test('a NACK names every failure and stays bounded', (t) => {
  t.is(nackMessage([]), null);
  t.is(
    nackMessage([
      { name: 'a', reason: 'bad' },
      { name: 'b', reason: 'worse' },
    ]),
    'a: bad; b: worse',
  );
  const many = Array.from({ length: 10_000 }, (_, index) => ({ name: `n${index}`, reason: 'bad' }));
  t.true((nackMessage(many)?.length ?? 0) < 20_000);
});

test('the node carries typed metadata, and JSON wins over text', (t) => {
  const node = nodeMessage({
    instanceIp: '10.0.0.1',
    podName: 'p',
    podNamespace: 'n',
    nodeName: 'node-1',
    metadata: { A: 'text', B: 'text' },
    jsonMetadata: { B: [1, true, null, { c: 'd' }] },
  });
  t.is(node.id, 'ztunnel~10.0.0.1~p.n~n.svc.cluster.local');
  const fields = node.metadata?.fields ?? {};
  t.is(fields['INSTANCE_IPS']?.stringValue, '10.0.0.1');
  t.is(fields['NODE_NAME']?.stringValue, 'node-1');
  t.is(fields['A']?.stringValue, 'text');
  t.deepEqual(fields['B']?.listValue?.values, [
    { numberValue: 1 },
    { boolValue: true },
    { nullValue: 0 },
    { structValue: { fields: { c: { stringValue: 'd' } } } },
  ]);
});

test('a stream is complete when each type was answered once, refused or not', (t) => {
  const subscriptions = new Subscriptions();
  t.deepEqual(subscriptions.answer({ typeUrl: ADDRESS_TYPE, nonce: '1', more: false }, []), {
    typeUrl: ADDRESS_TYPE,
    nonce: '1',
  });
  t.false(subscriptions.complete);
  subscriptions.answer({ typeUrl: 'something else', nonce: '2', more: false }, []);
  t.false(subscriptions.complete);
  const failures = [{ name: 'a', reason: 'bad' }];
  const policies = { typeUrl: AUTHORIZATION_TYPE, nonce: '3', more: false };
  subscriptions.answer({ ...policies, more: true }, []);
  t.false(subscriptions.complete, 'the answer goes on');
  t.is(subscriptions.answer(policies, failures).error, 'a: bad');
  t.true(subscriptions.complete);
});

const node = {
  instanceIp: '10.0.0.1',
  podName: 'p',
  podNamespace: 'n',
  nodeName: 'node-1',
  metadata: {},
  jsonMetadata: {},
};

const held = (names: readonly string[]): Map<string, string> =>
  new Map(names.map((name) => [name, '1']));

const response = (
  names: readonly string[],
  removed: readonly string[] = [],
  more = false,
): DeltaResponse => ({
  typeUrl: ADDRESS_TYPE,
  nonce: 'n',
  resources: names.map((name) => ({ name, version: '2', bytes: new Uint8Array() })),
  removed,
  more,
});

test('versions are listed as long as a request with them is one that istiod reads', (t) => {
  const name = (index: number): string => `Kubernetes//Pod/${'é'.repeat(500)}/${index}`;
  const some = held(Array.from({ length: 3_500 }, (_, index) => name(index)));
  const listed = new Subscriptions().initialRequests(node, () => some);
  t.is(Object.keys(listed[0]?.initialVersions ?? {}).length, 3_500);
  const bytes = listed.map((request) => encodeRequest(request).length);
  t.true(
    bytes.every((length) => length > 3_500_000 && length < 4 * 1024 * 1024),
    String(bytes),
  );
  const more = held(Array.from({ length: 4_500 }, (_, index) => name(index)));
  const subscriptions = new Subscriptions();
  const left = subscriptions.initialRequests(node, () => more);
  t.deepEqual(
    left.map(({ initialVersions }) => initialVersions),
    [undefined, undefined],
  );
});

test('removals that the server could not know of come with the last part of the first answer, once', (t) => {
  const names = Array.from({ length: 4_500 }, (_, index) => `${'n'.repeat(1_000)}${index}`);
  const [gone = '', removed = '', back = '', ...kept] = names;
  const subscriptions = new Subscriptions();
  subscriptions.initialRequests(node, (type) => held(type === ADDRESS_TYPE ? names : []));
  const first = subscriptions.changes(
    ADDRESS_TYPE,
    response(kept.slice(0, 2_000), [removed, back], true),
  );
  t.is(first.resources.length, 2_000);
  t.deepEqual(first.removed, []);
  const last = subscriptions.changes(ADDRESS_TYPE, response([...kept.slice(2_000), back]));
  t.deepEqual([...last.removed].sort(), [gone, removed].sort());
  t.deepEqual(subscriptions.changes(ADDRESS_TYPE, response(['other'])).removed, []);
});

test('names that were listed are removed by the server alone', (t) => {
  const subscriptions = new Subscriptions();
  subscriptions.initialRequests(node, () => held(['a', 'b']));
  t.deepEqual(subscriptions.changes(ADDRESS_TYPE, response(['c'])).removed, []);
  t.deepEqual(subscriptions.changes(ADDRESS_TYPE, response([], ['a', 'a'])).removed, ['a']);
});

test('bytes that are no response are an XDS_STREAM error', (t) => {
  t.throws(() => decodeResponse(Buffer.from([0xff, 0xff])), {
    message: /not a DeltaDiscoveryResponse/,
  });
});
