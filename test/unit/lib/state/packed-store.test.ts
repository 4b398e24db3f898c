import test from 'ava';
import type { Answer } from '../../../../lib/state/view.ts';
import { PackedStore } from '../../../../lib/state/packed-store.ts';
import { decodeAddress, resourceName } from '../../../../lib/xds/resources/address.ts';
import { encode, service, storeOf, vip, workload } from '../../../support/mesh-kit.ts';

const web = service({ hostname: 'web.demo', addresses: [vip('10.96.0.1')] });
const KEY = 'demo/web.demo';
const pod = (name: string, overrides = {}) =>
  workload({
    uid: `c//Pod/demo/${name}`,
    addresses: [`10.0.0.${name.length}`],
    services: { [KEY]: { 80: 8080 } },
    ...overrides,
  });

const uids = (answer: Answer): string[] => answer.workloads.map(({ uid }) => uid);
const endpointUids = (answer: Answer): string[] =>
  [...(answer.services[0]?.endpoints ?? [])].map(({ workload: { uid } }) => uid);
const byAddress = (ip: string, network = '') => ({ kind: 'address', network, ip }) as const;
const byService = { kind: 'service', namespace: 'demo', hostname: 'web.demo' } as const;

test('a workload is found by uid and by each of its addresses, as it was sent', (t) => {
  const one = pod('a', { addresses: ['10.0.0.1', 'fd00::1'], network: 'n1' });
  const store = storeOf([one]);
  t.deepEqual(store.lookup({ kind: 'uid', uid: one.uid }).workloads, [one]);
  t.deepEqual(uids(store.lookup(byAddress('10.0.0.1', 'n1'))), [one.uid]);
  t.deepEqual(uids(store.lookup(byAddress('fd00::1', 'n1'))), [one.uid]);
  t.deepEqual(store.lookup(byAddress('10.0.0.1')), { workloads: [], services: [] });
});

// spec: dataplane.md §3, spec: dataplane.md §9
test('a host-network workload is not found by address, and is an endpoint', (t) => {
  const host = pod('h', { networkMode: 'HOST_NETWORK' });
  const store = storeOf([host, web]);
  t.deepEqual(store.lookup(byAddress('10.0.0.1')).workloads, []);
  t.deepEqual(endpointUids(store.lookup(byService)), [host.uid]);
});

// spec: dataplane.md §3
test('of several workloads with one address pods with HBONE come first, then pods, then HBONE', (t) => {
  const addresses = ['10.0.0.9'];
  const ranks = [
    workload({ uid: 'x/entry', addresses, tunnelProtocol: 'NONE' }),
    workload({ uid: 'x/entry-hbone', addresses }),
    workload({ uid: 'x//Pod/a/plain', addresses, tunnelProtocol: 'NONE' }),
    workload({ uid: 'x//Pod/a/hbone', addresses }),
  ];
  t.deepEqual(uids(storeOf(ranks).lookup(byAddress('10.0.0.9'))), [
    'x//Pod/a/hbone',
    'x//Pod/a/plain',
    'x/entry-hbone',
    'x/entry',
  ]);
});

test('a service is found by VIP, by hostname, by both names, with its endpoints', (t) => {
  const store = storeOf([web, pod('a'), pod('bb')]);
  for (const key of [
    byAddress('10.96.0.1'),
    byService,
    { kind: 'hostname', hostname: 'web.demo' },
  ] as const) {
    const answer = store.lookup(key);
    t.deepEqual(answer.services[0]?.service, web);
    t.deepEqual(endpointUids(answer), ['c//Pod/demo/a', 'c//Pod/demo/bb']);
    t.deepEqual([...(answer.services[0]?.endpoints ?? [])][0]?.ports, { 80: 8080 });
  }
  t.is(store.servicesNamed('demo', 'web').length, 1);
});

test('endpoints that come before their service are held for it', (t) => {
  const store = storeOf([pod('a')]);
  t.deepEqual(store.lookup(byService).services, []);
  store.apply(KEY, encode(web));
  t.deepEqual(endpointUids(store.lookup(byService)), ['c//Pod/demo/a']);
  store.apply(KEY, null);
  store.apply(KEY, encode(web));
  t.deepEqual(endpointUids(store.lookup(byService)), ['c//Pod/demo/a'], 'also when it comes back');
});

// spec: dataplane.md §4.3
test('an unhealthy endpoint leaves, stays with ALLOW_ALL, and comes back when healthy', (t) => {
  const store = storeOf([web, pod('a')]);
  store.apply('c//Pod/demo/a', encode(pod('a', { status: 'UNHEALTHY' })));
  t.deepEqual(endpointUids(store.lookup(byService)), []);
  const all = { routingPreference: [], mode: 'UNSPECIFIED', healthPolicy: 'ALLOW_ALL' } as const;
  store.apply(KEY, encode({ ...web, loadBalancing: all }));
  t.deepEqual(endpointUids(store.lookup(byService)), ['c//Pod/demo/a']);
  store.apply(KEY, encode(web));
  t.deepEqual(endpointUids(store.lookup(byService)), []);
});

test('a replaced workload leaves its old addresses and services', (t) => {
  const store = storeOf([web, pod('a')]);
  store.apply('c//Pod/demo/a', encode(pod('a', { addresses: ['10.0.0.77'], services: {} })));
  t.deepEqual(store.lookup(byAddress('10.0.0.1')).workloads, []);
  t.deepEqual(uids(store.lookup(byAddress('10.0.0.77'))), ['c//Pod/demo/a']);
  t.deepEqual(endpointUids(store.lookup(byService)), []);
});

// spec: dataplane.md §3.3
test('a range is found by any address inside, and its endpoints are refreshed', (t) => {
  const range = service({ hostname: 'range.demo', addresses: [vip('10.50.0.0', '', 16)] });
  const store = storeOf([range]);
  const inside = byAddress('10.50.7.9');
  t.is(store.lookup(inside).services.length, 1);
  t.is(store.lookup(byAddress('10.51.0.1')).services.length, 0);
  const member = pod('a', { services: { 'demo/range.demo': { 80: 8080 } } });
  store.apply(member.uid, encode(member));
  t.deepEqual(endpointUids(store.lookup(inside)), [member.uid]);
  const stale = store.apply('demo/range.demo', encode({ ...range, canonical: true }));
  t.true(stale?.includes('address:/10.50.7.9'), 'the answer that was given is named');
  t.false(stale?.includes('address:/10.51.0.1'));
});

// spec: dataplane.md §3.3
test('IPv6 ranges and full-length ranges', (t) => {
  const store = storeOf([
    service({ hostname: 'six.demo', addresses: [vip('fd00:9::', '', 32)] }),
    service({ hostname: 'single.demo', addresses: [vip('10.9.9.9', '', 32)] }),
  ]);
  t.is(store.lookup(byAddress('fd00:9:1::5')).services.length, 1);
  t.is(store.lookup(byAddress('fd01::5')).services.length, 0);
  t.is(store.lookup(byAddress('10.9.9.9')).services.length, 1);
});

// spec: dataplane.md §2.3
test('a workload with a hostname answers for it in its namespace', (t) => {
  const external = workload({ uid: 'x/ext', hostname: 'ext.example' });
  const store = storeOf([external]);
  const key = { kind: 'service', namespace: 'demo', hostname: 'ext.example' } as const;
  t.deepEqual(uids(store.lookup(key)), ['x/ext']);
  t.deepEqual(uids(store.lookup({ ...key, namespace: 'other' })), []);
});

// spec: dataplane.md §1
test('a local workload is found by exact names on its node, or on any', (t) => {
  const store = storeOf([pod('a', { serviceAccount: 'web', node: 'node-2' })]);
  t.is(store.localWorkload('demo', 'a', 'web', 'node-2')?.uid, 'c//Pod/demo/a');
  t.is(store.localWorkload('demo', 'a', 'web', '')?.uid, 'c//Pod/demo/a');
  t.is(store.localWorkload('demo', 'a', 'web', 'node-1'), null);
  t.is(store.localWorkload('demo', 'a', 'default', 'node-2'), null);
  t.is(store.localWorkload('demo', 'b', 'web', 'node-2'), null);
});

test('a change names every answer it spoils, and the endpoints it concerns', (t) => {
  const changed: string[] = [];
  const store = new PackedStore(decodeAddress, {
    endpointChanged: (service, uid) => changed.push(`${service} ${uid}`),
  });
  for (const one of [web, pod('a')]) store.apply(resourceName(one), encode(one));
  t.deepEqual(changed.splice(0), [`${KEY} c//Pod/demo/a`]);
  const ids = store.apply('c//Pod/demo/a', encode(pod('a', { addresses: ['10.0.0.5'] })));
  t.deepEqual([...(ids ?? [])].sort(), [
    'address:/10.0.0.1',
    'address:/10.0.0.5',
    'uid:c//Pod/demo/a',
  ]);
  t.deepEqual(changed, [`${KEY} c//Pod/demo/a`]);
  const vips = store.apply(KEY, encode({ ...web, addresses: [vip('10.96.0.2')] }));
  t.true(vips?.includes('address:/10.96.0.1'));
  t.true(vips?.includes('address:/10.96.0.2'));
  t.deepEqual(
    store.apply(KEY, encode({ ...web, addresses: [vip('10.96.0.2')] })),
    [],
    'the same again',
  );
  t.deepEqual(store.apply('unknown', null), []);
});

test('when too many addresses were asked for to remember, a changed range spoils all answers', (t) => {
  const range = service({ hostname: 'range.demo', addresses: [vip('10.50.0.0', '', 16)] });
  const store = storeOf([range]);
  for (let index = 0; index < 17_000; index += 1) {
    store.lookup(byAddress(`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`));
  }
  t.is(store.apply('demo/range.demo', encode({ ...range, ports: { 81: 81 } })), null);
  t.not(store.apply('demo/range.demo', encode(range)), null, 'then it begins anew');
});

test('bytes that are no resource are refused and change nothing', (t) => {
  const store = storeOf([pod('a')]);
  const before = store.lookup({ kind: 'uid', uid: 'c//Pod/demo/a' });
  t.throws(() => store.apply('c//Pod/demo/a', new Uint8Array([255, 255])), {
    code: 'XDS_RESOURCE',
  });
  t.deepEqual(store.lookup({ kind: 'uid', uid: 'c//Pod/demo/a' }), before);
  t.deepEqual([...store.names()], ['c//Pod/demo/a']);
});

test('of rows with one identity the one named after it counts, whatever came last', (t) => {
  const store = new PackedStore(decodeAddress);
  store.apply('alias-2', encode(pod('a', { canonicalName: 'second' })));
  store.apply('alias-1', encode(pod('a', { canonicalName: 'first' })));
  const name = (): string | undefined =>
    store.lookup({ kind: 'uid', uid: 'c//Pod/demo/a' }).workloads[0]?.canonicalName;
  t.is(store.lookup({ kind: 'uid', uid: 'c//Pod/demo/a' }).workloads.length, 1);
  t.is(name(), 'first');
  store.apply('c//Pod/demo/a', encode(pod('a', { canonicalName: 'own' })));
  t.is(name(), 'own');
  t.is(store.lookup(byAddress('10.0.0.1')).workloads.length, 1);
  t.true(store.apply('c//Pod/demo/a', null)?.includes('uid:c//Pod/demo/a'));
  t.is(name(), 'first');
});

test('100,000 workloads are held in tens of megabytes', (t) => {
  const rows = 100_000;
  globalThis.gc?.();
  const before = process.memoryUsage();
  const store = new PackedStore(decodeAddress, { node: 'node-1' });
  for (let index = 0; index < rows; index += 1) {
    const uid = `Kubernetes//Pod/namespace-${index % 100}/deployment-${index}`;
    const ip = `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
    const services = {
      [`namespace-${index % 100}/svc-${index % 2_000}.svc.cluster.local`]: { 80: 8080 },
    };
    store.apply(
      uid,
      encode(
        workload({
          uid,
          addresses: [ip],
          services,
          node: `node-${index % 200}`,
          canonicalName: 'app',
        }),
      ),
    );
  }
  globalThis.gc?.();
  const after = process.memoryUsage();
  t.is(store.size, rows);
  t.true(store.packedBytes < 40 * 1024 * 1024, `packed ${store.packedBytes}`);
  const grown = after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers;
  t.log(
    `packed ${Math.round(store.packedBytes / 2 ** 20)} MiB, all ${Math.round(grown / 2 ** 20)} MiB`,
  );
});
