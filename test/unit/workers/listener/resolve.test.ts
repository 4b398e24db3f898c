import test from 'ava';
import { MAX_NAME_LOOKUPS, NAME_WAIT_MS } from '../../../../workers/listener/limits.ts';
import { NameLookups } from '../../../../workers/listener/resolve.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const name = { hostname: 'db.example', preferredFamily: 4 } as const;
const lookup = (answers: readonly string[], clock = new FakeClock()): NameLookups =>
  new NameLookups({ ipv6: true, clock, addresses: () => Promise.resolve(answers) });

test('an address of the preferred family goes before one of the other', async (t) => {
  const clock = new FakeClock();
  t.is(await lookup(['2001:DB8::1', '192.0.2.1'], clock).resolve(name), '192.0.2.1');
  t.is(await lookup(['2001:DB8::1']).resolve(name), '2001:db8::1');
  t.is(clock.pending, 0);
});

test('a name without an address, or that is not known, has no upstream', async (t) => {
  await t.throwsAsync(lookup([]).resolve(name), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'db.example has no address',
  });
  const addresses = () => Promise.reject(new Error('ENOTFOUND'));
  const unknown = new NameLookups({ ipv6: true, clock: new FakeClock(), addresses });
  await t.throwsAsync(unknown.resolve(name), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'cannot resolve db.example: ENOTFOUND',
  });
});

test('name servers that are silent hold a connection for a limited time', async (t) => {
  const clock = new FakeClock();
  const addresses = () => new Promise<string[]>(() => {});
  const silent = new NameLookups({ ipv6: true, clock, addresses });
  const resolving = t.throwsAsync(silent.resolve(name), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'cannot resolve db.example: no answer within 5000 ms',
  });
  await clock.advance(NAME_WAIT_MS);
  await resolving;
});

/** Lookups that are answered when the test says so, and what was asked. */
function heldLookups(ipv6 = true) {
  const asked: string[] = [];
  const pending = new Map<string, (answers: readonly string[]) => void>();
  const addresses = (hostname: string, family: 0 | 4): Promise<readonly string[]> => {
    asked.push(`${hostname} ${family}`);
    return new Promise((resolve) => pending.set(hostname, resolve));
  };
  const clock = new FakeClock();
  const lookups = new NameLookups({ ipv6, clock, addresses });
  return {
    lookups,
    clock,
    asked,
    answer: (of: string, with_: string[]) => pending.get(of)?.(with_),
  };
}

test('connections to one name share a lookup while it is under way', async (t) => {
  const { lookups, asked, answer } = heldLookups();
  const one = lookups.resolve(name);
  const other = lookups.resolve({ hostname: 'DB.example', preferredFamily: 6 });
  t.deepEqual(asked, ['db.example 0']);
  answer('db.example', ['192.0.2.1', '2001:db8::1']);
  t.deepEqual(await Promise.all([one, other]), ['192.0.2.1', '2001:db8::1']);
  const later = lookups.resolve(name);
  t.is(asked.length, 2, 'an answer is not kept');
  answer('db.example', ['192.0.2.2']);
  t.is(await later, '192.0.2.2');
});

test('a lookup that was given up is joined, not repeated', async (t) => {
  const { lookups, clock, asked, answer } = heldLookups(false);
  const first = t.throwsAsync(lookups.resolve(name), { code: 'ROUTE_NO_UPSTREAM' });
  await clock.advance(NAME_WAIT_MS);
  await first;
  const second = lookups.resolve(name);
  t.deepEqual(asked, ['db.example 4']);
  answer('db.example', ['192.0.2.1']);
  t.is(await second, '192.0.2.1');
  t.is(lookups.underWay, 0);
});

test('only so many names are looked up at once', async (t) => {
  const { lookups, clock, asked, answer } = heldLookups();
  const waiting = Array.from({ length: MAX_NAME_LOOKUPS }, (_, index) =>
    lookups.resolve({ ...name, hostname: `n${index}.example` }).catch(() => 'given up'),
  );
  t.is(lookups.underWay, MAX_NAME_LOOKUPS);
  const refused = {
    code: 'ROUTE_NO_UPSTREAM',
    message: `cannot resolve db.example: ${MAX_NAME_LOOKUPS} other names are being looked up`,
  };
  await t.throwsAsync(lookups.resolve(name), refused);
  await clock.advance(NAME_WAIT_MS);
  t.is(await waiting[0], 'given up');
  // Giving up ends no lookup.
  await t.throwsAsync(lookups.resolve(name), refused);
  const joined = lookups.resolve({ ...name, hostname: 'n0.example' });
  answer('n0.example', ['192.0.2.1']);
  t.is(await joined, '192.0.2.1');
  const admitted = lookups.resolve(name);
  answer('db.example', ['192.0.2.2']);
  t.is(await admitted, '192.0.2.2');
  t.is(asked.length, MAX_NAME_LOOKUPS + 1);
});
