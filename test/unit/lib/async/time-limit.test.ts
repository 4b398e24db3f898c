import test from 'ava';
import { withTimeLimit } from '../../../../lib/async/time-limit.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

test('what is done in time passes, success and failure', async (t) => {
  const clock = new FakeClock();
  const release = () => t.fail('it was in time');
  const limit = { limitMs: 10, what: 'no answer', release };
  t.is(await withTimeLimit(clock, Promise.resolve(1), limit), 1);
  t.is(await withTimeLimit(clock, Promise.resolve(2), { ...limit, limitMs: null }), 2);
  await t.throwsAsync(withTimeLimit(clock, Promise.reject(new Error('no')), limit), {
    message: 'no',
  });
});

test('what comes too late is an error, and let go of when it comes', async (t) => {
  const clock = new FakeClock();
  const { promise, resolve } = Promise.withResolvers<string>();
  const released: string[] = [];
  const limit = { limitMs: 10, what: 'no answer', release: (late: string) => released.push(late) };
  const result = withTimeLimit(clock, promise, limit);
  await clock.advance(10);
  await t.throwsAsync(result, { code: 'UPSTREAM_TIMEOUT', message: /no answer within 10 ms/ });
  resolve('late');
  await promise;
  await Promise.resolve();
  t.deepEqual(released, ['late']);
});

test('a failure after the time limit is nobody’s business', async (t) => {
  const clock = new FakeClock();
  const { promise, reject } = Promise.withResolvers<string>();
  const limit = { limitMs: 10, what: 'no answer', release: () => t.fail('nothing came') };
  const result = withTimeLimit(clock, promise, limit);
  await clock.advance(10);
  await t.throwsAsync(result, { code: 'UPSTREAM_TIMEOUT' });
  reject(new Error('later'));
  await t.throwsAsync(promise);
});
