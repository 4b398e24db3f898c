/** When attempts for a certificate are made, and when those who wait are told that one failed (docs/decisions/certificate-attempts.md). */
import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { API, WEB, kit } from '../../../support/certificate-manager-kit.ts';
import { until } from '../../../support/until.ts';

test('a final failure is told at once, and the next request comes with growing delays', async (t) => {
  const { manager, clock, request, unavailable, signing } = await kit(t);
  manager.want(WEB, 'realTime');
  const delays: number[] = [];
  for (let number = 1; number <= 10; number += 1) {
    const current = await request(number);
    current.giveUp(new MeshError('IDENTITY_REFUSED', `refused ${number}`));
    await until(() => unavailable.length === number, { what: 'the refusal to be told' });
    t.is(unavailable[number - 1]?.[1].message, `refused ${number}`);
    const status = manager.want(WEB, 'warmUp');
    t.true(status.kind === 'unavailable' && status.error.message === `refused ${number}`);
    t.is(signing.requests.length, number, 'asking ahead fetches nothing');
    const delay = clock.nextInMs ?? 0;
    delays.push(delay);
    await clock.advance(delay);
  }
  t.deepEqual(
    delays,
    [1, 2, 4, 8, 16, 32, 64, 128, 150, 150].map((seconds) => seconds * 1000),
  );
});

test('who waits is spared the failures of the first seconds, and told the last one after them', async (t) => {
  const { manager, clock, request, sign, unavailable, signing, counted } = await kit(t);
  manager.want(WEB, 'realTime');
  const first = await request(1);
  first.fail(new MeshError('IDENTITY_UNAVAILABLE', 'the CA starts'));
  await clock.advance(8_999);
  first.fail(new MeshError('IDENTITY_REFUSED', 'not yet'));
  t.deepEqual(unavailable, []);
  t.is(manager.records()[0]?.state, 'Initializing');
  t.deepEqual(counted, ['IDENTITY_UNAVAILABLE', 'IDENTITY_REFUSED']);
  await clock.advance(1);
  t.deepEqual(
    unavailable.map(([identity, { message }]) => [identity, message]),
    [[WEB, 'not yet']],
  );
  t.is(manager.records()[0]?.state, 'Unavailable: not yet');
  first.fail(new MeshError('IDENTITY_REFUSED', 'still not'));
  t.is(unavailable[1]?.[1].message, 'still not');
  t.is(counted.length, 3);
  await sign(first, 60_000);
  t.is(manager.status(WEB).kind, 'available');
  t.is(signing.requests.length, 1);
});

test('a certificate that comes within the first seconds ends them', async (t) => {
  const { manager, clock, request, sign, unavailable } = await kit(t);
  manager.want(WEB, 'realTime');
  const first = await request(1);
  first.fail(new MeshError('IDENTITY_REFUSED', 'not yet'));
  await sign(first, 86_400_000);
  await clock.advance(10_000);
  t.deepEqual(unavailable, []);
});

test('a connection has the next attempt made a second after the last one failed', async (t) => {
  const { manager, clock, request, sign, unavailable, signing } = await kit(t);
  manager.want(WEB, 'warmUp');
  const first = await request(1);
  await clock.advance(9_000);
  t.regex(unavailable[0]?.[1].message ?? '', /no answer/);
  first.fail(new MeshError('IDENTITY_REFUSED', 'not yet'));
  t.is(unavailable[1]?.[1].message, 'not yet');
  for (let connection = 0; connection < 3; connection += 1) {
    t.is(manager.want(WEB, 'realTime').kind, 'unavailable');
  }
  await clock.advance(999);
  t.deepEqual(signing.hastened, []);
  await clock.advance(1);
  t.deepEqual([signing.hastened, signing.raised], [[WEB], [[WEB, 'realTime']]]);
  first.fail(new MeshError('IDENTITY_REFUSED', 'still not'));
  t.is(unavailable.at(-1)?.[1].message, 'still not');
  await clock.advance(60_000);
  t.deepEqual(signing.hastened, [WEB], 'nobody asked');
  manager.want(WEB, 'realTime');
  await clock.advance(0);
  t.deepEqual(signing.hastened, [WEB, WEB]);
  await sign(first, 60_000);
  t.is(manager.status(WEB).kind, 'available');
  manager.retry(WEB);
  await clock.advance(1_000);
  t.is(signing.hastened.length, 2);
  t.is(signing.requests.length, 1);
});

test('an attempt can be had before the first failure is told', async (t) => {
  const { manager, clock, request, unavailable, signing } = await kit(t);
  manager.want(WEB, 'warmUp');
  const first = await request(1);
  manager.retry(WEB);
  await clock.advance(2_000);
  t.deepEqual(signing.hastened, [], 'no attempt has failed');
  first.fail(new MeshError('IDENTITY_REFUSED', 'no workload'));
  manager.retry(WEB);
  await clock.advance(1_000);
  t.deepEqual(signing.hastened, [WEB]);
  await clock.advance(6_000);
  t.is(unavailable[0]?.[1].message, 'no workload');
  manager.retry(WEB);
  manager.forget(WEB);
  await clock.advance(2_000);
  t.deepEqual([signing.hastened, clock.pending], [[WEB], 0]);
});

test('a connection ends the backoff between requests, unless no attempt can help', async (t) => {
  const { manager, clock, request, signing } = await kit(t);
  manager.want(WEB, 'warmUp');
  for (let number = 1; number <= 5; number += 1) {
    (await request(number)).giveUp(new MeshError('IDENTITY_REFUSED', 'not yet'));
    await until(() => manager.status(WEB).kind === 'unavailable', { what: 'the refusal' });
    if (number < 5) await clock.advance(clock.nextInMs ?? 0);
  }
  t.is(clock.nextInMs, 16_000);
  manager.want(WEB, 'realTime');
  await clock.advance(1_000);
  const hastened = await request(6);
  t.is(hastened.urgency, 'realTime');
  const final = new MeshError('IDENTITY_INVALID', 'for another key');
  hastened.giveUp(final);
  await until(() => manager.records()[0]?.state.includes('another key'), { what: 'the refusal' });
  t.deepEqual(manager.want(WEB, 'realTime'), { kind: 'unavailable', error: final });
  await clock.advance(2_000);
  t.is(signing.requests.length, 6);
  manager.retry(API);
  t.deepEqual(manager.identities(), [WEB]);
});

test('when nobody answers, those who wait are told after a while', async (t) => {
  const { manager, clock, request, unavailable } = await kit(t);
  manager.want(WEB, 'realTime');
  await request(1);
  await clock.advance(8_999);
  t.is(unavailable.length, 0);
  await clock.advance(1);
  t.regex(unavailable[0]?.[1].message ?? '', /no answer .* within 9 s/);
});
