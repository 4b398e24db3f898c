import test from 'ava';
import { renewOwnCertificate } from '../../../services/ca/own-certificate.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';

test('the own certificate is renewed at half of what is left, again after a failure, until it is stopped', async (t) => {
  const clock = new FakeClock();
  const { log, lines } = capturedLog();
  const stopped = new AbortController();
  const start = clock.now();
  const life = 100_000;
  const renewals: number[] = [];
  const done = renewOwnCertificate(start + life, { clock, log }, stopped.signal, () => {
    renewals.push(clock.now() - start);
    if (renewals.length === 1) return Promise.reject(new Error('no entropy'));
    return Promise.resolve(clock.now() + life);
  });
  // The renewal comes after half of the remaining time, varied by a tenth.
  await clock.advance(0.55 * life);
  t.is(renewals.length, 1);
  t.is(lines.at(-1)?.['message'], 'serving-certificate.renewal-failed');
  await clock.advance(0.3 * life);
  t.is(renewals.length, 2, 'a failure is followed by an attempt before the end');
  await clock.advance(0.56 * life);
  t.is(renewals.length, 3);
  stopped.abort();
  await done;
  await clock.advance(10 * life);
  t.is(renewals.length, 3);
});
