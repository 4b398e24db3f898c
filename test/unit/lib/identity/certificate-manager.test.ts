import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { ROOTS_PER_TURN } from '../../../../lib/identity/certificate-manager.ts';
import { parseRequest } from '../../../../lib/identity/csr.ts';
import { issueLeaf } from '../../../../lib/identity/x509.ts';
import {
  API,
  START,
  WEB,
  authority,
  kit,
  rootsOf,
} from '../../../support/certificate-manager-kit.ts';
import { until } from '../../../support/until.ts';

test('an identity is initializing, then available, and published with our own roots', async (t) => {
  const { manager, request, sign, published, ca } = await kit(t);
  t.deepEqual(manager.want(WEB, 'warmUp'), { kind: 'initializing' });
  t.is(manager.records()[0]?.state, 'Initializing');
  const first = await request(1);
  t.is(first.urgency, 'warmUp');
  await sign(first, 86_400_000);
  const status = manager.want(WEB, 'realTime');
  t.is(status.kind, 'available');
  t.is(published.length, 1);
  t.is(published[0]?.rootsPem, ca.pem);
  t.is(published[0]?.key.type, 'private');
  const [record] = manager.records();
  t.like(record, {
    identity: WEB,
    node: 'node-1',
    state: 'Available',
    notAfter: '2026-11-22T00:00:00Z',
    notBefore: '2026-11-20T23:58:00Z',
  });
  t.is(record?.serial, published[0]?.serialNumber);
  const [dump] = manager.dump();
  t.is(dump?.certChain.length, 1);
  t.regex(dump?.certChain[0]?.serialNumber ?? '', /^\d+$/);
  t.is(Buffer.from(dump?.rootCerts[0]?.pem ?? '', 'base64').toString(), ca.pem);
});

test('asking twice makes one request; more urgency raises it', async (t) => {
  const { manager, signing, request } = await kit(t);
  manager.want(WEB, 'warmUp');
  manager.want(WEB, 'warmUp');
  await request(1);
  manager.want(WEB, 'realTime');
  manager.want(WEB, 'realTime');
  t.is(signing.requests.length, 1);
  t.deepEqual(signing.raised, [[WEB, 'realTime']]);
});

test('a text that is no identity is refused', async (t) => {
  const { manager } = await kit(t);
  const error = t.throws(() => manager.want('demo/web', 'realTime'), { instanceOf: MeshError });
  t.is(error?.code, 'IDENTITY_INVALID');
  t.deepEqual(manager.identities(), []);
});

test('renewal comes at half of the time left, with a fresh key, and replaces the certificate', async (t) => {
  const { manager, clock, request, sign, signing, published } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(29_999);
  t.is(signing.requests.length, 1);
  await clock.advance(1);
  const second = await request(2);
  t.is(second.urgency, 'renewal');
  t.is(manager.status(WEB).kind, 'available');
  await sign(second, 60_000);
  t.is(published.length, 2);
  t.not(published[1]?.serialNumber, published[0]?.serialNumber);
  const [old, fresh] = published;
  t.true(old !== undefined && fresh?.key.equals(old.key) === false);
});

test('a failing renewal keeps the certificate until it expires, never beyond', async (t) => {
  const { manager, clock, request, sign, unavailable, published } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(30_000);
  (await request(2)).giveUp(new MeshError('IDENTITY_UNAVAILABLE', 'the CA is away'));
  await clock.advance(500);
  t.is(manager.status(WEB).kind, 'available');
  t.deepEqual(unavailable, []);
  await clock.advance(29_499);
  t.is(manager.status(WEB).kind, 'available');
  await clock.advance(1);
  const status = manager.status(WEB);
  t.true(status.kind === 'unavailable' && status.error.code === 'IDENTITY_EXPIRED');
  t.is(unavailable.at(-1)?.[1].code, 'IDENTITY_EXPIRED');
  t.regex(
    unavailable.at(-1)?.[1].message ?? '',
    /expired at 2026-11-21T00:01:00.000Z; renewal failed: the CA is away/,
  );
  t.regex(manager.records()[0]?.state ?? '', /^Unavailable: the certificate expired/);
  t.is(published.length, 1);
});

test('a late answer brings an expired identity back', async (t) => {
  const { manager, clock, request, sign } = await kit(t);
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  await clock.advance(90_000);
  t.is(manager.status(WEB).kind, 'unavailable');
  await sign(await request(2), 60_000);
  t.is(manager.status(WEB).kind, 'available');
});

for (const [what, options, reason] of [
  ['another name', { identity: API }, /names spiffe.*api, expected .*web/],
  ['a foreign root', { by: 'other' }, /does not lead to a trusted root/],
] as const) {
  test(`an answer with ${what} is refused and never published`, async (t) => {
    const { manager, request, sign, published, unavailable, counted } = await kit(t);
    manager.want(WEB, 'realTime');
    const by = 'by' in options ? { by: await authority() } : options;
    await sign(await request(1), 60_000, by);
    t.deepEqual(published, []);
    t.regex(unavailable[0]?.[1].message ?? '', reason);
    t.deepEqual(counted, ['IDENTITY_INVALID']);
  });
}

test('an answer for another key is refused', async (t) => {
  const { manager, request, unavailable, ca, published } = await kit(t);
  manager.want(WEB, 'realTime');
  manager.want(API, 'realTime');
  const first = await request(1);
  const second = await request(2);
  const { publicKey } = await parseRequest(second.csrPem);
  const leaf = await issueLeaf(ca.issuer, {
    publicKey,
    names: [{ kind: 'uri', value: first.identity }],
    notBeforeMs: START - 1_000,
    notAfterMs: START + 60_000,
  });
  first.answer([leaf, ca.pem]);
  await until(() => unavailable.length > 0, { what: 'the refusal' });
  t.regex(unavailable[0]?.[1].message ?? '', /for another key/);
  t.deepEqual(published, []);
});

for (const chain of [
  [],
  ['only one'],
  ['no pem', 'no pem'],
  Array.from({ length: 40 }, () => 'x'),
]) {
  test(`an answer of ${chain.length} broken elements is refused`, async (t) => {
    const { manager, request, unavailable } = await kit(t);
    manager.want(WEB, 'realTime');
    (await request(1)).answer(chain);
    await until(() => unavailable.length > 0, { what: 'the refusal' });
    t.is(unavailable[0]?.[1].code, 'IDENTITY_INVALID');
  });
}

test('a root that comes with the chain and is not ours is reported and not used', async (t) => {
  const { manager, request, published, counted, ca } = await kit(t);
  const other = await authority();
  manager.want(WEB, 'realTime');
  const first = await request(1);
  const { publicKey } = await parseRequest(first.csrPem);
  const leaf = await issueLeaf(ca.issuer, {
    publicKey,
    names: [{ kind: 'uri', value: WEB }],
    notBeforeMs: START - 1_000,
    notAfterMs: START + 60_000,
  });
  first.answer([leaf, ca.pem + other.pem]);
  await until(() => published.length > 0, { what: 'the certificate' });
  t.is(published[0]?.rootsPem, ca.pem);
  t.deepEqual(counted, ['issued', 'unknownRoot']);
});

test('changed roots are published with the same certificate; one they do not bear is renewed', async (t) => {
  const { manager, request, sign, bundle, ca, published, signing } = await kit(t);
  const next = await authority();
  manager.want(WEB, 'realTime');
  await sign(await request(1), 86_400_000);
  bundle.change(rootsOf(ca, next));
  t.is(published.length, 2);
  t.is(published[1]?.rootsPem, ca.pem + next.pem);
  t.is(published[1]?.serialNumber, published[0]?.serialNumber);
  t.is(signing.requests.length, 1);
  bundle.change(rootsOf(next));
  t.is(published[2]?.rootsPem, next.pem);
  await sign(await request(2), 86_400_000, { by: next });
  t.is(published.length, 4);
  t.not(published[3]?.serialNumber, published[0]?.serialNumber);
});

test('changed roots are published for a few identities in a turn, the newest roots alone', async (t) => {
  const { manager, request, sign, bundle, ca, published } = await kit(t);
  const [next, last] = [rootsOf(ca, await authority()), rootsOf(ca, await authority())];
  const count = 3 * ROOTS_PER_TURN;
  for (let index = 1; index <= count; index += 1) {
    manager.want(`${WEB}-${index}`, 'realTime');
    await sign(await request(index), 86_400_000);
  }
  published.splice(0);
  bundle.change(next);
  t.is(published.length, ROOTS_PER_TURN);
  await turn();
  t.is(published.length, 2 * ROOTS_PER_TURN);
  published.splice(0);
  bundle.change(last);
  for (let turns = 1; turns <= 3; turns += 1) {
    t.is(published.length, turns * ROOTS_PER_TURN);
    await turn();
  }
  t.is(published.length, count);
  t.true(published.every(({ rootsPem }) => rootsPem === last.pem));
});

test('an identity whose request told the CA other roots asks again', async (t) => {
  const { manager, request, sign, bundle, ca, signing } = await kit(t);
  const next = rootsOf(ca, await authority());
  manager.want(WEB, 'realTime');
  const first = await request(1);
  bundle.change(next);
  await turn();
  t.is(signing.requests.length, 1, 'it is under way');
  await sign(first, 86_400_000);
  const second = await request(2);
  const [before, after] = await Promise.all(
    [first, second].map(async ({ csrPem }) => (await parseRequest(csrPem)).trustedRoots?.length),
  );
  t.deepEqual([before, after], [1, 2]);
  await sign(second, 86_400_000);
  await turn();
  t.is(signing.requests.length, 2);
});

test('new roots are told by an identity that waits for no certificate', async (t) => {
  const { manager, request, sign, bundle, ca, signing } = await kit(t);
  manager.want(WEB, 'realTime');
  await request(1);
  manager.want(API, 'realTime');
  await sign(await request(2), 86_400_000);
  bundle.change(rootsOf(ca, await authority()));
  t.is((await request(3)).identity, API);
  t.is(signing.requests.length, 3);
});

test('without a bundle nothing is accepted; its arrival ends the wait', async (t) => {
  const { manager, request, sign, bundle, ca, published, unavailable } = await kit(t, 'unknown');
  manager.want(WEB, 'realTime');
  await sign(await request(1), 60_000);
  t.regex(unavailable[0]?.[1].message ?? '', /trust bundle has not been read/);
  bundle.change(rootsOf(ca));
  await sign(await request(2), 60_000);
  t.is(published.length, 1);
});

test('a forgotten identity is gone, and its answer is discarded', async (t) => {
  const { manager, request, published, unavailable, clock, signing } = await kit(t);
  manager.want(WEB, 'warmUp');
  const first = await request(1);
  manager.forget(WEB);
  manager.forget(WEB);
  t.true(first.signal.aborted);
  t.deepEqual(manager.records(), []);
  await clock.advance(600_000);
  t.deepEqual([published, unavailable, signing.requests.length, clock.pending], [[], [], 1, 0]);
  manager.want(WEB, 'realTime');
  await request(2);
});

test('background requests are bounded, real-time ones pass them', async (t) => {
  const { manager, signing, request } = await kit(t);
  for (let number = 0; number < 70; number += 1) {
    manager.want(`spiffe://cluster.local/ns/demo/sa/a${number}`, 'warmUp');
  }
  await request(64);
  t.is(signing.requests.length, 64);
  manager.want('spiffe://cluster.local/ns/demo/sa/a69', 'realTime');
  manager.want(WEB, 'realTime');
  await request(66);
  t.deepEqual(
    signing.requests
      .slice(64)
      .map((item) => item.identity)
      .toSorted(),
    ['spiffe://cluster.local/ns/demo/sa/a69', WEB],
  );
  manager.forget('spiffe://cluster.local/ns/demo/sa/a0');
  t.is((await request(67)).identity, 'spiffe://cluster.local/ns/demo/sa/a64');
  t.deepEqual(manager.counts(), { initializing: 70, available: 0, unavailable: 0 });
});
