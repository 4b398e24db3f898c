import test from 'ava';
import { aliasesOf, meshSearchDomains, wildcardForms } from '../../../../lib/dns/aliases.ts';

const NS = 'shop';
const D = 'cluster.local';
const context = {
  namespace: NS,
  clusterDomain: D,
  searchDomains: meshSearchDomains(NS, D),
};

const names = (name: string): string[] => aliasesOf(name, context).map((alias) => alias.name);
const stripped = (name: string): (string | null)[] =>
  aliasesOf(name, context).map((alias) => alias.stripped);

test('the search domains of a pod are its namespace, svc and the cluster domain (spec: dns.md §3)', (t) => {
  t.deepEqual(context.searchDomains, [
    'shop.svc.cluster.local',
    'svc.cluster.local',
    'cluster.local',
  ]);
});

test('short names are expanded by their number of labels (spec: dns.md §3)', (t) => {
  t.deepEqual(names('a'), ['a', 'a.shop.svc.cluster.local']);
  t.deepEqual(names('a.b'), ['a.b', 'a.b.svc.cluster.local', 'a.b.shop.svc.cluster.local']);
  t.deepEqual(names('a.b.svc'), ['a.b.svc', 'a.b.svc.cluster.local', 'a.b.svc.svc.cluster.local']);
  t.deepEqual(names('a.b.c'), ['a.b.c', 'a.b.c.svc.cluster.local']);
  t.deepEqual(names('a.b.c.svc'), ['a.b.c.svc', 'a.b.c.svc.cluster.local']);
  t.deepEqual(names('a.b.c.d'), ['a.b.c.d']);
  t.deepEqual(names('a.b.c.d.svc'), ['a.b.c.d.svc']);
});

test('a name below a search domain is also what is left without it, in the order of the domains (spec: dns.md §3)', (t) => {
  t.deepEqual(
    names('www.x.com.shop.svc.cluster.local'),
    [
      'www.x.com.shop.svc.cluster.local',
      'www.x.com',
      'www.x.com.svc.cluster.local',
      'www.x.com.shop',
      'www.x.com.shop.svc',
      'www.x.com.shop.svc.cluster.local',
    ].filter((name, index, all) => all.indexOf(name) === index),
  );
  t.deepEqual(stripped('www.x.com.shop.svc.cluster.local'), [
    null,
    'www.x.com',
    'www.x.com',
    'www.x.com.shop',
    'www.x.com.shop.svc',
  ]);
});

test('a search domain itself is not below itself (spec: dns.md §3)', (t) => {
  t.false(names('cluster.local').includes(''));
  t.deepEqual(stripped('cluster.local'), [null, null, null]);
});

test('no alias comes twice and the first keeps its place (spec: dns.md §3)', (t) => {
  const all = names('cart.shop.shop.svc.cluster.local');
  t.deepEqual(all, [...new Set(all)]);
  t.deepEqual(all.slice(0, 2), ['cart.shop.shop.svc.cluster.local', 'cart.shop']);
});

test('wildcards take the place of the first labels, one by one, down to the last (spec: dns.md §2.2, spec: dns.md §2.3)', (t) => {
  t.deepEqual(wildcardForms('a.b.c'), ['a.b.c', '*.b.c', '*.c']);
  t.deepEqual(wildcardForms('a'), ['a']);
});
