import test from 'ava';
import { EndpointSet } from '../../../../lib/state/endpoint-set.ts';
import { resolveQuestion } from '../../../../lib/dns/resolve.ts';
import type { DnsDecision, DnsRules } from '../../../../lib/dns/resolve.ts';
import type { Need } from '../../../../lib/state/lookups.ts';
import type { Service, Workload } from '../../../../lib/state/model.ts';
import type { LookupKey, MeshView } from '../../../../lib/state/view.ts';
import { service, workload } from '../../../support/workloads.ts';

const A = 1;
const AAAA = 28;
const rules: DnsRules = {
  clusterDomain: 'cluster.local',
  ipv6: true,
  preferredNamespace: null,
  searchDomains: null,
};

interface Entry {
  readonly service: Service;
  readonly endpoints?: readonly Workload[];
}

/** Makes a view that knows the whole mesh. */
function viewOf(...entries: readonly Entry[]): MeshView {
  return {
    get: (key: LookupKey) => ({
      workloads: [],
      services: entries
        .filter((entry) => key.kind === 'hostname' && entry.service.hostname === key.hostname)
        .map((entry) => ({
          service: entry.service,
          endpoints: new EndpointSet(
            null,
            (entry.endpoints ?? []).map((one) => ({ workload: one, ports: {} })),
          ),
        })),
    }),
  };
}

function vip(ip: string, network = ''): Service['addresses'][number] {
  return { network, ip, length: null };
}

function ask(
  view: MeshView,
  name: string | null,
  options: {
    readonly type?: number;
    readonly class?: number;
    readonly rules?: Partial<DnsRules>;
    readonly network?: string;
  } = {},
): DnsDecision | Need {
  return resolveQuestion(
    view,
    { name, type: options.type ?? A, class: options.class ?? 1 },
    {
      client: { namespace: 'shop', network: options.network ?? '' },
      rules: { ...rules, ...options.rules },
      shuffle: (addresses) => addresses,
    },
  );
}

function addresses(decision: DnsDecision | Need): readonly string[] | string {
  return decision.kind === 'local' ? decision.answer.addresses : decision.kind;
}

const cart = service({
  name: 'cart',
  namespace: 'shop',
  hostname: 'cart.shop.svc.cluster.local',
  addresses: [vip('10.96.4.4')],
});
const pay = service({
  name: 'pay',
  namespace: 'bank',
  hostname: 'pay.bank.svc.cluster.local',
  addresses: [vip('10.96.5.5')],
});
const mesh = viewOf({ service: cart }, { service: pay });

test('only questions for addresses on the internet are looked up (spec: dns.md §2.1)', (t) => {
  for (const type of [5, 15, 16, 33, 65, 255, 65_280]) {
    t.is(ask(mesh, 'cart', { type }).kind, 'forward');
  }
  t.is(ask(mesh, 'cart', { class: 3 }).kind, 'forward');
  t.is(ask(mesh, null).kind, 'forward');
});

test('the short, the longer and the whole name of a service mean it (spec: dns.md §4)', (t) => {
  for (const name of ['cart', 'cart.shop', 'cart.shop.svc', 'cart.shop.svc.cluster.local']) {
    const decision = ask(mesh, name);
    t.deepEqual(addresses(decision), ['10.96.4.4'], name);
    t.is(decision.kind === 'local' ? decision.answer.alias : '?', null, name);
  }
});

test('a name with a search domain in excess is an alias of what is left (spec: dns.md §4)', (t) => {
  const decision = ask(mesh, 'cart.shop.shop.svc.cluster.local');
  t.like(decision, {
    kind: 'local',
    answer: { alias: 'cart.shop', addresses: ['10.96.4.4'] },
  });
});

test('a service of another namespace is not meant by its short name (spec: dns.md §4)', (t) => {
  t.is(ask(mesh, 'pay').kind, 'forward');
  t.deepEqual(addresses(ask(mesh, 'pay.bank')), ['10.96.5.5']);
});

test('names nobody has are forwarded (spec: dns.md §2.4)', (t) => {
  t.is(ask(mesh, 'www.example.com').kind, 'forward');
});

test('a wildcard host name covers all names below, the longest first (spec: dns.md §2.3)', (t) => {
  const wide = service({ namespace: 'shop', hostname: '*.com', addresses: [vip('10.0.0.1')] });
  const near = service({ namespace: 'shop', hostname: '*.x.com', addresses: [vip('10.0.0.2')] });
  const exact = service({ namespace: 'shop', hostname: 'a.x.com', addresses: [vip('10.0.0.3')] });
  const view = viewOf({ service: wide }, { service: near }, { service: exact });
  t.deepEqual(addresses(ask(view, 'a.x.com')), ['10.0.0.3']);
  t.deepEqual(addresses(ask(view, 'b.x.com')), ['10.0.0.2']);
  t.deepEqual(addresses(ask(view, 'c.b.x.com')), ['10.0.0.2']);
  t.deepEqual(addresses(ask(view, 'y.com')), ['10.0.0.1']);
  t.is(ask(view, 'com').kind, 'forward');
});

test('a wildcard match makes no alias: the addresses belong to the asked name (spec: dns.md §4)', (t) => {
  const near = service({ namespace: 'shop', hostname: '*.x.com', addresses: [vip('10.0.0.2')] });
  const decision = ask(viewOf({ service: near }), 'a.x.com.shop.svc.cluster.local');
  t.like(decision, { kind: 'local', answer: { alias: null, addresses: ['10.0.0.2'] } });
});

test('services without addresses of their own count only as headless Kubernetes services (spec: dns.md §2.3)', (t) => {
  const external = service({ namespace: 'shop', hostname: 'db.example.com' });
  const ranged = service({
    namespace: 'shop',
    hostname: 'net.example.com',
    addresses: [{ network: '', ip: '10.0.0.0', length: 8 }],
  });
  const view = viewOf({ service: external }, { service: ranged });
  t.is(ask(view, 'db.example.com').kind, 'forward');
  t.is(ask(view, 'net.example.com').kind, 'forward');
});

test('services that are not visible to the client are not found (spec: dns.md §2.3)', (t) => {
  const secret = { ...pay, visibility: 'NAMESPACE' } as const;
  t.is(ask(viewOf({ service: secret }), 'pay.bank').kind, 'forward');
  const own = { ...cart, visibility: 'NAMESPACE' } as const;
  t.deepEqual(addresses(ask(viewOf({ service: own }), 'cart')), ['10.96.4.4']);
});

test('of several services the own namespace, canonical, the preferred namespace, the first (spec: dns.md §2.3)', (t) => {
  const at = (namespace: string, ip: string, canonical = false): Entry => ({
    service: service({ namespace, hostname: 'api.com', addresses: [vip(ip)], canonical }),
  });
  const others = [at('a', '10.0.0.1'), at('b', '10.0.0.2'), at('c', '10.0.0.3')];
  const canonical = [at('d', '10.0.0.4', true), at('e', '10.0.0.5', true)];
  const own = at('shop', '10.0.0.6');
  const preferred = { rules: { preferredNamespace: 'b' } };
  t.deepEqual(addresses(ask(viewOf(...others), 'api.com')), ['10.0.0.1']);
  t.deepEqual(addresses(ask(viewOf(...others), 'api.com', preferred)), ['10.0.0.2']);
  t.deepEqual(addresses(ask(viewOf(...others, ...canonical), 'api.com', preferred)), ['10.0.0.5']);
  t.deepEqual(addresses(ask(viewOf(...others, ...canonical, own), 'api.com', preferred)), [
    '10.0.0.6',
  ]);
});

test('the family of a service and of the mesh limits what is answered, with nothing rather than no such name (spec: dns.md §4)', (t) => {
  const both = service({
    namespace: 'shop',
    hostname: 'both.shop.svc.cluster.local',
    addresses: [vip('10.96.1.1'), vip('fd00::1')],
  });
  const answer = (change: Partial<Service>, type: number, ipv6 = true): unknown =>
    addresses(ask(viewOf({ service: { ...both, ...change } }), 'both', { type, rules: { ipv6 } }));
  t.deepEqual(answer({}, A), ['10.96.1.1']);
  t.deepEqual(answer({}, AAAA), ['fd00::1']);
  t.deepEqual(answer({}, AAAA, false), []);
  t.deepEqual(answer({ ipFamilies: 'IPV4_ONLY' }, AAAA), []);
  t.deepEqual(answer({ ipFamilies: 'IPV6_ONLY' }, A), []);
  t.deepEqual(answer({ ipFamilies: 'IPV6_ONLY' }, AAAA), ['fd00::1']);
  t.deepEqual(addresses(ask(mesh, 'cart', { type: AAAA })), []);
});

test("only virtual addresses of the client's network are given (spec: dns.md §4)", (t) => {
  const two = service({
    namespace: 'shop',
    hostname: 'two.shop.svc.cluster.local',
    addresses: [vip('10.96.1.1', 'east'), vip('10.96.2.2', 'west')],
  });
  const view = viewOf({ service: two });
  t.deepEqual(addresses(ask(view, 'two', { network: 'west' })), ['10.96.2.2']);
  t.deepEqual(addresses(ask(view, 'two', { network: 'north' })), []);
});

test('a headless service is its endpoints, each with its first address of the family (spec: dns.md §4)', (t) => {
  const db = service({ namespace: 'shop', hostname: 'db.shop.svc.cluster.local' });
  const endpoints = [
    workload({ uid: 'a', addresses: ['10.0.0.1', 'fd00::1', '10.0.0.9'], network: 'other' }),
    workload({ uid: 'b', addresses: ['fd00::2'] }),
    workload({ uid: 'c', addresses: ['10.0.0.3'] }),
  ];
  const view = viewOf({ service: db, endpoints });
  t.deepEqual(addresses(ask(view, 'db')), ['10.0.0.1', '10.0.0.3']);
  t.deepEqual(addresses(ask(view, 'db', { type: AAAA })), ['fd00::1', 'fd00::2']);
  t.deepEqual(addresses(ask(viewOf({ service: db }), 'db')), []);
});

test('the order of several addresses is that of the shuffle, none is left out (spec: dns.md §4)', (t) => {
  const many = service({
    namespace: 'shop',
    hostname: 'many.com',
    addresses: [vip('10.0.0.1'), vip('10.0.0.2'), vip('10.0.0.3')],
  });
  const decision = resolveQuestion(
    viewOf({ service: many }),
    { name: 'many.com', type: A, class: 1 },
    {
      client: { namespace: 'shop', network: '' },
      rules,
      shuffle: (list) => list.toReversed(),
    },
  );
  t.deepEqual(addresses(decision), ['10.0.0.3', '10.0.0.2', '10.0.0.1']);
});

test('what the view cannot tell yet is asked for and is never "no such name"', (t) => {
  const asked: LookupKey[] = [];
  const empty: MeshView = {
    get: (key) => {
      asked.push(key);
      return undefined;
    },
  };
  const decision = ask(empty, 'cart');
  t.is(decision.kind, 'need');
  if (decision.kind !== 'need') return;
  t.true(
    decision.keys.some(
      (key) => key.kind === 'hostname' && key.hostname === 'cart.shop.svc.cluster.local',
    ),
  );
  t.deepEqual(decision.keys.length, new Set(decision.keys.map((key) => JSON.stringify(key))).size);
});

test('a name of very many labels is asked for in bounded rounds', (t) => {
  const name = Array.from({ length: 120 }, () => 'a').join('.');
  const empty: MeshView = { get: () => undefined };
  const decision = ask(empty, name);
  t.true(decision.kind === 'need' && decision.keys.length <= 64);
});
