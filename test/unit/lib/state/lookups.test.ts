/** Tests docs/spec/dataplane.md §3 (ranking of services) and §6 (destination address). */
import test from 'ava';
import { EndpointSet } from '../../../../lib/state/endpoint-set.ts';
import { destinationIp, pickResolved } from '../../../../lib/state/destination-ip.ts';
import { serviceByAddress, serviceByHostname } from '../../../../lib/state/lookups.ts';
import type { NetworkAddress, Service } from '../../../../lib/state/model.ts';
import { service, vip, workload } from '../../../support/mesh-kit.ts';

const at = (namespace: string, parts: Partial<Service>, ...addresses: NetworkAddress[]) => ({
  service: service({ hostname: 'h', namespace, addresses, ...parts }),
  endpoints: new EndpointSet(null),
});
const found = (candidates: ReturnType<typeof at>[], namespace: string | null, ip = '10.0.0.1') =>
  serviceByAddress(candidates, '', ip, namespace)?.service.namespace ?? null;
const exact = vip('10.0.0.1');

// spec: dataplane.md §3.2
test('VIP: the service of the own namespace, else the last canonical, else the first', (t) => {
  const plain = [at('a', {}, exact), at('b', {}, exact)];
  t.is(found(plain, 'b'), 'b');
  t.is(found(plain, 'z'), 'a');
  const canonical = [
    at('a', {}, exact),
    at('b', { canonical: true }, exact),
    at('c', { canonical: true }, exact),
  ];
  t.is(found(canonical, 'z'), 'c');
  t.is(found(canonical, 'a'), 'a');
});

// spec: dataplane.md §3.1
test('VIP: a service visible in its namespace alone is not there for others', (t) => {
  const hidden = at('a', { visibility: 'NAMESPACE' }, exact);
  t.is(found([hidden], 'b'), null);
  t.is(found([hidden], 'a'), 'a');
  t.is(found([hidden], null), 'a', 'without a client namespace nothing is hidden');
});

// spec: dataplane.md §3.1
test('VIP: another network is another address', (t) => {
  t.is(found([at('a', {}, vip('10.0.0.1', 'n2'))], 'a'), null);
});

// spec: dataplane.md §3.3
test('CIDR: only without an exact VIP, ranked by namespace, then length, then canonical, the first of equals', (t) => {
  const range = (length: number) => vip('10.0.0.0', '', length);
  t.is(found([at('a', {}, range(24)), at('b', {}, exact)], 'a'), 'b');
  t.is(found([at('a', {}, range(24)), at('b', {}, range(8))], 'b'), 'b');
  t.is(found([at('a', {}, range(8)), at('b', {}, range(24))], 'z'), 'b');
  t.is(found([at('a', {}, range(8)), at('b', { canonical: true }, range(8))], 'z'), 'b');
  t.is(found([at('a', {}, range(8)), at('b', {}, range(8))], 'z'), 'a');
  t.is(found([at('a', { visibility: 'NAMESPACE' }, range(8))], 'z'), null);
  t.is(found([at('a', {}, range(24))], 'a', '10.0.1.1'), null);
  t.is(
    found([at('a', {}, vip('10.0.0.1', '', 32)), at('b', {}, range(24))], 'b'),
    'a',
    '/32 is exact',
  );
});

// spec: dataplane.md §3
test('hostname: ranked as a VIP', (t) => {
  const name = (candidates: ReturnType<typeof at>[], namespace: string) =>
    serviceByHostname(candidates, namespace)?.service.namespace;
  t.is(name([at('a', {}), at('b', {})], 'b'), 'b');
  t.is(name([at('a', {}), at('b', { canonical: true })], 'z'), 'b');
  t.is(name([at('a', { visibility: 'NAMESPACE' }), at('b', {})], 'z'), 'b');
});

const dual = workload({ uid: 'w', addresses: ['10.0.0.1', '10.0.0.2', 'fd00::1'] });

// spec: dataplane.md §6.1
test('6.1 an address of the workload that was dialled is kept, whatever the service allows', (t) => {
  const only6 = service({ hostname: 'h', ipFamilies: 'IPV6_ONLY' });
  t.deepEqual(destinationIp(dual, only6, '10.0.0.2'), { kind: 'ip', ip: '10.0.0.2' });
});

// spec: dataplane.md §6.2
test('6.2 else the first of the dialled family, else the first the service allows', (t) => {
  t.deepEqual(destinationIp(dual, null, 'fd99::1'), { kind: 'ip', ip: 'fd00::1' });
  t.deepEqual(destinationIp(dual, null, '10.96.0.1'), { kind: 'ip', ip: '10.0.0.1' });
  const only4 = service({ hostname: 'h', ipFamilies: 'IPV4_ONLY' });
  t.deepEqual(destinationIp(dual, only4, 'fd99::1'), { kind: 'ip', ip: '10.0.0.1' });
  const only6 = service({ hostname: 'h', ipFamilies: 'IPV6_ONLY' });
  t.deepEqual(destinationIp(dual, only6, '10.96.0.1'), { kind: 'ip', ip: 'fd00::1' });
  const without6 = { ...dual, addresses: ['10.0.0.1'] };
  t.deepEqual(destinationIp(without6, only6, '10.96.0.1'), { kind: 'none' });
});

// spec: dataplane.md §6.3, spec: dataplane.md §6.4
test('6.3 and 6.4 else a name is resolved, a gateway is the only way, or there is none', (t) => {
  const bare = { ...dual, addresses: [] };
  t.deepEqual(destinationIp({ ...bare, hostname: 'x.example' }, null, 'fd99::1'), {
    kind: 'resolve',
    hostname: 'x.example',
    preferredFamily: 6,
  });
  const networkGateway = {
    destination: { kind: 'address', network: '', ip: '10.0.0.9' },
    hboneMtlsPort: 1,
  } as const;
  t.deepEqual(destinationIp({ ...bare, networkGateway }, null, '10.0.0.1'), {
    kind: 'gateway-only',
  });
  t.deepEqual(destinationIp(bare, null, '10.0.0.1'), { kind: 'none' });
});

// spec: dataplane.md §6.4
test('6.4 of the answers a random one of the preferred family, else any', (t) => {
  const answers = ['10.0.0.1', 'fd00::1', 'fd00::2'];
  t.is(
    pickResolved(answers, 6, () => 0),
    'fd00::1',
  );
  t.is(
    pickResolved(answers, 6, () => 0.99),
    'fd00::2',
  );
  t.is(
    pickResolved(['10.0.0.1'], 6, () => 0.99),
    '10.0.0.1',
  );
  t.is(
    pickResolved([], 4, () => 0),
    null,
  );
});
