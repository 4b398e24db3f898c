import test from 'ava';
import { AnswerCache } from '../../../../lib/dns/answer-cache.ts';
import { parseHosts } from '../../../../lib/dns/hosts-file.ts';
import { parseResolvConf } from '../../../../lib/dns/resolv-conf.ts';
import { NameLookups } from '../../../../workers/listener/dns/endpoint-names.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

/** Makes lookups without a name server, which answer only from the hosts file. */
function lookups(hosts = '', ipv6 = true): NameLookups {
  const clock = new FakeClock();
  return new NameLookups({
    ipv6,
    clock,
    descriptors: { make: (open) => open() },
    resolvers: { current: parseResolvConf('') },
    hosts: { current: parseHosts(hosts) },
    cache: new AnswerCache(clock),
  });
}

const name = { hostname: 'db.example', preferredFamily: 4 } as const;

test('names of the hosts file are not asked for, in the family that is wanted', async (t) => {
  const hosts = '2001:DB8::1 db.example\n192.0.2.1 DB.example # the same\n';
  const all = lookups(hosts);
  t.is(await all.resolve(name), '192.0.2.1');
  t.is(await all.resolve({ hostname: 'Db.Example.', preferredFamily: 6 }), '2001:db8::1');
  const one = lookups('2001:db8::2 db.example');
  t.is(await one.resolve(name), '2001:db8::2');
  await t.throwsAsync(lookups('2001:db8::2 db.example', false).resolve(name), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'db.example has no address',
  });
});

test('addresses are taken as they are, and localhost is the loopback unless the hosts file says otherwise', async (t) => {
  const all = lookups('192.0.2.9 db.localhost');
  t.is(await all.resolve({ hostname: '::FFFF:192.0.2.7', preferredFamily: 6 }), '192.0.2.7');
  t.is(await all.resolve({ hostname: 'localhost', preferredFamily: 4 }), '127.0.0.1');
  t.is(await all.resolve({ hostname: 'LOCALHOST', preferredFamily: 6 }), '::1');
  t.is(await all.resolve({ hostname: 'db.localhost', preferredFamily: 4 }), '192.0.2.9');
});

test('without a name server a name cannot be resolved, and the error says why', async (t) => {
  await t.throwsAsync(lookups().resolve(name), {
    code: 'ROUTE_NO_UPSTREAM',
    message: 'cannot resolve db.example: no name server is configured',
  });
});
