import { X509Certificate } from 'node:crypto';
import test from 'ava';
import type { Authority } from '../../../services/ca/authority.ts';
import { OwnCertificate } from '../../../services/ca/own-certificate.ts';
import { authorityOf, newState } from '../../../services/ca/state.ts';
import { capturedLog } from '../../support/bus.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { until } from '../../support/until.ts';

const HOUR_MS = 3_600_000;

test('the own certificate is renewed at half of its life, after a failure, and by a new authority, until it is closed', async (t) => {
  const clock = new FakeClock();
  const { log, lines } = capturedLog();
  const make = async (): Promise<Authority> =>
    authorityOf(await newState('cluster.local', clock.now()), 'test', clock.now());
  let current = await make();
  const listeners = new Set<(next: Authority) => void>();
  let failing = false;
  const authority = {
    get current(): Authority {
      if (failing) throw new Error('no entropy');
      return current;
    },
    where: 'the test',
    problem: null,
    rotation: null,
    onChange(listener: (next: Authority) => void) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    start: () => Promise.resolve(),
    close: () => Promise.resolve(),
  };
  const renewed: X509Certificate[] = [];
  const own = new OwnCertificate(
    { clock, log, authority, names: [{ kind: 'dns', value: 'ca.test' }] },
    ({ chainPem }) => renewed.push(new X509Certificate(chainPem)),
  );
  t.teardown(() => own.close());
  const first = new X509Certificate((await own.start()).chainPem);
  t.true(first.verify(current.issuer.certificate.publicKey));
  failing = true;
  // The renewal comes after half of the remaining time, varied by a tenth.
  await clock.advance(13.2 * HOUR_MS);
  await until(() => lines.at(-1)?.['message'] === 'serving-certificate.renewal-failed', {
    what: 'the failure to be logged',
  });
  t.is(renewed.length, 0);
  failing = false;
  await clock.advance(7.2 * HOUR_MS);
  await until(() => renewed.length === 1, { what: 'the attempt before the end' });
  current = await make();
  for (const listener of listeners) listener(current);
  await until(() => renewed.length === 2, { what: 'the certificate of the new authority' });
  t.true(renewed[1]?.verify(current.issuer.certificate.publicKey));
  own.close();
  await clock.advance(100 * HOUR_MS);
  t.is(renewed.length, 2);
  t.is(clock.pending, 0);
});
