import test from 'ava';
import { NAME_WAIT_MS } from '../../../../workers/listener/limits.ts';
import { resolveName } from '../../../../workers/listener/resolve.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const name = { hostname: 'db.example', preferredFamily: 4 } as const;
const lookup = (answers: readonly string[], clock = new FakeClock()) => ({
  ipv6: true,
  clock,
  addresses: () => Promise.resolve(answers),
});

test('an address of the preferred family goes before one of the other', async (t) => {
  const clock = new FakeClock();
  t.is(await resolveName(name, lookup(['2001:DB8::1', '192.0.2.1'], clock)), '192.0.2.1');
  t.is(await resolveName(name, lookup(['2001:DB8::1'])), '2001:db8::1');
  t.is(clock.pending, 0);
});

test('a name without an address, or that is not known, has no upstream', async (t) => {
  await t.throwsAsync(resolveName(name, lookup([])), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'db.example has no address',
  });
  const unknown = { ...lookup([]), addresses: () => Promise.reject(new Error('ENOTFOUND')) };
  await t.throwsAsync(resolveName(name, unknown), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'cannot resolve db.example: ENOTFOUND',
  });
});

test('name servers that are silent hold a connection for a limited time', async (t) => {
  const clock = new FakeClock();
  const silent = { ...lookup([], clock), addresses: () => new Promise<string[]>(() => {}) };
  const resolving = t.throwsAsync(resolveName(name, silent), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'cannot resolve db.example: no answer within 5000 ms',
  });
  await clock.advance(NAME_WAIT_MS);
  await resolving;
});
