/** Tests docs/spec/dataplane.md §4 and §5, rule by rule. */
import test from 'ava';
import { EndpointSet } from '../../../../lib/state/endpoint-set.ts';
import { pickEndpoint, sample } from '../../../../lib/state/load-balance.ts';
import type { BalancingMode } from '../../../../lib/state/load-balance.ts';
import type {
  LoadBalancing,
  PortMap,
  RoutingScope,
  Service,
  Workload,
} from '../../../../lib/state/model.ts';
import { service, workload } from '../../../support/mesh-kit.ts';

const place = (region: string, zone: string, node: string, network = '') => ({
  locality: { region, zone, subzone: '' },
  node,
  network,
});
const source = workload({ uid: 'client', addresses: ['10.0.0.1'], ...place('r1', 'z1', 'n1') });
const endpoint = (uid: string, parts: Partial<Workload> = {}, ports: PortMap = { 80: 8080 }) => ({
  workload: workload({ uid, addresses: ['10.0.0.9'], ...parts }),
  ports,
});
type Endpoints = readonly ReturnType<typeof endpoint>[];
const pick = (
  endpoints: Endpoints,
  parts: Partial<Service> = {},
  options: { port?: number; mode?: BalancingMode; random?: number; except?: string[] } = {},
) => {
  const web = service({ hostname: 'web.demo', ...parts });
  return pickEndpoint(
    { service: web, endpoints: new EndpointSet(web.loadBalancing, endpoints) },
    source,
    options.port ?? 80,
    options.mode ?? 'standard',
    () => options.random ?? 0,
    new Set(options.except ?? []),
  );
};
/** Returns every endpoint that some draw picks. */
const reachable = (endpoints: Endpoints, parts: Partial<Service> = {}): string[] => {
  const found = new Set<string>();
  for (let draw = 0; draw < 1; draw += 0.01) {
    const uid = pick(endpoints, parts, { random: draw })?.workload.uid;
    if (uid !== undefined) found.add(uid);
  }
  return [...found].sort();
};
const prefer = (
  mode: LoadBalancing['mode'],
  ...routingPreference: RoutingScope[]
): Partial<Service> => ({
  loadBalancing: { routingPreference, mode, healthPolicy: 'ONLY_HEALTHY' },
});

// spec: dataplane.md §4.1
test('4.1 standard: a port the service does not define has no upstream', (t) => {
  t.is(pick([endpoint('a')], {}, { port: 81 }), null);
});

// spec: dataplane.md §4.2
test('4.2 an endpoint without address counts on another network with a gateway only', (t) => {
  const gateway = {
    destination: { kind: 'address', network: '', ip: '10.0.0.3' },
    hboneMtlsPort: 1,
  } as const;
  t.is(pick([endpoint('a', { addresses: [] })]), null);
  t.is(pick([endpoint('a', { addresses: [], networkGateway: gateway })]), null);
  t.is(pick([endpoint('a', { addresses: [], network: 'n2' })]), null);
  t.is(
    pick([endpoint('a', { addresses: [], network: 'n2', networkGateway: gateway })])?.port,
    8080,
  );
  t.is(pick([endpoint('a', { addresses: [], hostname: 'a.example' })])?.port, 8080);
});

// spec: dataplane.md §4.2
test('4.2 standard: with a named target port the endpoint must map the port itself', (t) => {
  const named = { ports: { 80: 0 } };
  t.is(pick([endpoint('a', {}, {})], named), null);
  t.is(pick([endpoint('a', {}, { 80: 9090 })], named)?.port, 9090);
});

// spec: dataplane.md §4.2
test('4.2 waypoint: a port the service lacks needs an application tunnel', (t) => {
  const tunnel = { applicationTunnel: { protocol: 'NONE', port: 15_088 } } as const;
  const options = { port: 15_008, mode: 'waypoint' } as const;
  t.is(pick([endpoint('a', {}, {})], {}, options), null);
  t.is(pick([endpoint('a', tunnel, {})], {}, options)?.port, 15_008);
});

// spec: dataplane.md §4.4
test('4.4 FAILOVER keeps the endpoints with the most preferences in a row', (t) => {
  const near = endpoint('near', place('r1', 'z1', 'n9'));
  const region = endpoint('region', place('r1', 'z2', 'n1'));
  const far = endpoint('far', place('r2', 'z1', 'n1'));
  const failover = prefer('FAILOVER', 'REGION', 'ZONE');
  t.deepEqual(reachable([near, region, far], failover), ['near']);
  t.deepEqual(reachable([region, far], failover), ['region']);
  t.deepEqual(reachable([far], failover), ['far']);
});

// spec: dataplane.md §4.4
test('4.4 STRICT drops endpoints that miss one', (t) => {
  const strict = prefer('STRICT', 'NODE');
  t.deepEqual(reachable([endpoint('a', { node: 'n1' }), endpoint('b', { node: 'n2' })], strict), [
    'a',
  ]);
  t.deepEqual(reachable([endpoint('b', { node: 'n2' })], strict), []);
});

// spec: dataplane.md §4.4
test('4.4 UNSPECIFIED ignores preferences', (t) => {
  const ignored = prefer('UNSPECIFIED', 'NODE');
  t.deepEqual(reachable([endpoint('a', { node: 'n1' }), endpoint('b', { node: 'n2' })], ignored), [
    'a',
    'b',
  ]);
});

// spec: dataplane.md §4.4
test('4.4 two empty values are equal', (t) => {
  const strict = prefer('STRICT', 'SUBZONE');
  t.deepEqual(reachable([endpoint('a')], strict), ['a']);
});

// spec: dataplane.md §4.4
test('4.4 a first NETWORK outweighs the rest, and its mismatch does not end the walk', (t) => {
  const all = endpoint('1 all', place('r1', 'z1', 'n1'));
  const region = endpoint('2 net+region', place('r1', 'z2', 'n1'));
  const net = endpoint('3 net', place('r2', 'z1', 'n1'));
  const other = endpoint('4 region+zone elsewhere', place('r1', 'z1', 'n1', 'n2'));
  const otherRegion = endpoint('5 region elsewhere', place('r1', 'z2', 'n1', 'n2'));
  const none = endpoint('6 none', place('r2', 'z2', 'n1', 'n2'));
  const ranked = [all, region, net, other, otherRegion, none];
  const failover = prefer('FAILOVER', 'NETWORK', 'REGION', 'ZONE');
  for (let index = 0; index < ranked.length; index += 1) {
    const left = ranked.slice(index);
    t.deepEqual(reachable(left.toReversed(), failover), [left[0]?.workload.uid ?? '']);
  }
});

// spec: dataplane.md §4.4
test('4.4 CLUSTER compares cluster ids', (t) => {
  const strict = prefer('STRICT', 'CLUSTER');
  t.deepEqual(reachable([endpoint('a'), endpoint('b', { clusterId: 'x' })], strict), ['a']);
});

// spec: dataplane.md §4.5
test('4.5 capacity weighs; 0 is never chosen; all 0 or none is no upstream', (t) => {
  const endpoints = [
    endpoint('a', { capacity: 1 }),
    endpoint('b', { capacity: 3 }),
    endpoint('c', { capacity: 0 }),
  ];
  const count = { a: 0, b: 0, c: 0 };
  for (let draw = 0; draw < 100; draw += 1) {
    count[(pick(endpoints, {}, { random: draw / 100 })?.workload.uid ?? 'c') as 'a' | 'b' | 'c'] +=
      1;
  }
  t.deepEqual(count, { a: 25, b: 75, c: 0 });
  t.is(pick([endpoint('c', { capacity: 0 })]), null);
  t.is(pick([]), null);
});

// spec: dataplane.md §4.5
test('4.5 a draw at the very end still gives an item', (t) => {
  t.is(
    sample(
      [0.1, 0.2, 0.3],
      (item) => item,
      () => 1 - Number.EPSILON / 2,
    ),
    0.3,
  );
});

// spec: dataplane.md §5
test("5 the endpoint's own port goes before the service's, then the port itself with a tunnel port", (t) => {
  t.is(pick([endpoint('a', {}, { 80: 9090 })])?.port, 9090);
  t.is(pick([endpoint('a', {}, {})])?.port, 8080);
  const waypoint = { mode: 'waypoint' } as const;
  const tunnel = (port: number) => ({ applicationTunnel: { protocol: 'NONE' as const, port } });
  t.is(pick([endpoint('a', tunnel(15_088), {})], { ports: { 80: 0 } }, waypoint)?.port, 80);
  t.is(pick([endpoint('a', tunnel(0), {})], { ports: { 80: 0 } }, waypoint), null);
});

/** docs/decisions/connect-retry.md */
const afterFailure = (endpoints: Endpoints, parts: Partial<Service>, except: string[]) => {
  const chosen = pick(endpoints, parts, { except });
  return chosen === null ? null : [chosen.workload.uid, chosen.alternatives];
};

// spec: dataplane.md §4.4
test('a retry under STRICT stays with the endpoints that may serve, the failed one where it is alone', (t) => {
  const near = endpoint('near', place('r1', 'z1', 'n1'));
  const other = endpoint('other', place('r1', 'z1', 'n2'));
  const outside = endpoint('outside', place('r1', 'z2', 'n1'));
  const strict = prefer('STRICT', 'ZONE');
  t.deepEqual(afterFailure([near, outside], strict, []), ['near', false]);
  t.deepEqual(afterFailure([near, outside], strict, ['near']), ['near', false]);
  t.deepEqual(afterFailure([near, other, outside], strict, []), ['near', true]);
  t.deepEqual(afterFailure([near, other, outside], strict, ['near']), ['other', false]);
  t.deepEqual(afterFailure([near, other, outside], strict, ['near', 'other']), ['near', false]);
});

// spec: dataplane.md §4.4
test('a retry under FAILOVER goes to the next nearest, and begins again when all have failed', (t) => {
  const near = endpoint('near', place('r1', 'z1', 'n1'));
  const region = endpoint('region', place('r1', 'z2', 'n1'));
  const far = endpoint('far', place('r2', 'z1', 'n1'));
  const all = [far, region, near];
  const failover = prefer('FAILOVER', 'REGION', 'ZONE');
  t.deepEqual(afterFailure(all, failover, []), ['near', true]);
  t.deepEqual(afterFailure(all, failover, ['near']), ['region', true]);
  t.deepEqual(afterFailure(all, failover, ['near', 'region']), ['far', false]);
  t.deepEqual(afterFailure(all, failover, ['near', 'region', 'far']), ['near', false]);
});

// spec: dataplane.md §4.5
test('a retry does not take endpoints without capacity or port for alternatives', (t) => {
  const good = endpoint('good');
  t.deepEqual(afterFailure([good, endpoint('none', { capacity: 0 })], {}, []), ['good', false]);
  t.deepEqual(afterFailure([good, endpoint('none', { capacity: 0 })], {}, ['good']), [
    'good',
    false,
  ]);
  const named = { ports: { 80: 0 } };
  const without = endpoint('without', {}, { 80: 0 });
  t.deepEqual(afterFailure([good, without], named, ['good']), ['good', false]);
});
