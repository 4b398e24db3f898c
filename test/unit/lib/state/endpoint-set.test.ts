/** Tests how many endpoints a pick and a change read in a service with 5,000 endpoints. */
import test from 'ava';
import { EndpointSet } from '../../../../lib/state/endpoint-set.ts';
import { pickEndpoint } from '../../../../lib/state/load-balance.ts';
import type { Endpoint, Service, Workload } from '../../../../lib/state/model.ts';
import { service, workload } from '../../../support/mesh-kit.ts';

const MANY = 5_000;
const source = workload({ uid: 'client', node: 'n1', locality: zone('z1') });

function zone(name: string): Workload['locality'] {
  return { region: 'r', zone: name, subzone: '' };
}

/** Makes endpoints that count the reads of their workload. */
function counted(count: number, parts: (index: number) => Partial<Workload> = () => ({})) {
  const looks = { count: 0 };
  const endpoints = Array.from({ length: count }, (_, index): Endpoint => {
    const held = workload({ uid: `w${index}`, addresses: ['10.0.0.9'], ...parts(index) });
    return {
      ports: { 80: 8080 },
      get workload() {
        looks.count += 1;
        return held;
      },
    };
  });
  return { looks, endpoints };
}

const inZones: Partial<Service> = {
  loadBalancing: {
    routingPreference: ['REGION', 'ZONE'],
    mode: 'FAILOVER',
    healthPolicy: 'ONLY_HEALTHY',
  },
};

for (const [name, parts, groups] of [
  ['alike', {}, 1],
  ['in three zones', inZones, 3],
] as const) {
  test(`neither a pick nor a change looks at all of many endpoints (${name})`, (t) => {
    const web = service({ hostname: 'web.demo', ...parts });
    const { looks, endpoints } = counted(MANY, (index) => ({ locality: zone(`z${index % 3}`) }));
    const set = new EndpointSet(web.loadBalancing, endpoints);
    const pick = (except: string[] = []) =>
      pickEndpoint(
        { service: web, endpoints: set },
        source,
        80,
        'standard',
        Math.random,
        new Set(except),
      );
    t.is(set.groupCount, groups);
    looks.count = 0;
    t.truthy(pick());
    // A plan reads one endpoint of each group a few times.
    const planned = looks.count;
    t.true(planned <= 10 * groups, `${planned}`);
    looks.count = 0;
    for (let connection = 0; connection < 100; connection += 1) t.truthy(pick());
    t.true(looks.count <= 5 * 100, `${looks.count}`);
    looks.count = 0;
    t.truthy(pick(['w1', 'w2']));
    t.true(looks.count <= 10 * groups, `a retry: ${looks.count}`);
    looks.count = 0;
    set.delete('w7');
    set.put({ workload: workload({ uid: 'new', addresses: ['10.0.0.8'] }), ports: { 80: 8080 } });
    t.true(looks.count <= 10, `a change: ${looks.count}`);
    t.is(set.size, MANY);
    looks.count = 0;
    t.truthy(pick());
    t.true(looks.count <= 10 * (groups + 1), `after a change: ${looks.count}`);
  });
}

test('an endpoint that changes is found as it is now, and no other one is lost', (t) => {
  const { endpoints } = counted(5);
  const set = new EndpointSet(null, endpoints);
  const uids = () => [...set].map((endpoint) => endpoint.workload.uid).toSorted();
  set.put({ workload: workload({ uid: 'w1', addresses: ['10.0.0.7'], capacity: 3 }), ports: {} });
  t.is(set.groupCount, 2);
  t.deepEqual(uids(), ['w0', 'w1', 'w2', 'w3', 'w4']);
  for (const uid of ['w4', 'w0', 'w0', 'nobody']) set.delete(uid);
  t.deepEqual(uids(), ['w1', 'w2', 'w3']);
  for (const uid of uids()) {
    const place = set.placeOf(uid);
    t.is(place?.group.members[place.index]?.workload.uid, uid);
  }
  for (const uid of uids()) set.delete(uid);
  t.deepEqual([set.size, set.groupCount, [...set.groups()].length], [0, 0, 0]);
});

test('identities and addresses are those of the endpoints there are', (t) => {
  const at = (uid: string, serviceAccount: string, ...addresses: string[]) => ({
    workload: workload({ uid, serviceAccount, addresses }),
    ports: {},
  });
  const web = 'spiffe://cluster.local/ns/demo/sa/web';
  const set = new EndpointSet(null, [
    at('a', 'web', '10.0.0.1', '10.0.0.1'),
    at('b', 'web', '10.0.0.2'),
  ]);
  t.true(set.hasIdentity(web) && set.hasIdentity(web, '10.0.0.2'));
  t.false(
    set.hasIdentity(web, '10.0.0.3') || set.hasIdentity('spiffe://cluster.local/ns/demo/sa/x'),
  );
  set.delete('b');
  t.true(set.hasIdentity(web) && set.hasIdentity(web, '10.0.0.1'));
  t.false(set.hasIdentity(web, '10.0.0.2'));
  set.put(at('a', 'api', '10.0.0.1'));
  t.false(set.hasIdentity(web) || set.hasIdentity(web, '10.0.0.1'));
});

test('what is remembered goes with a change, and is bounded', (t) => {
  const set = new EndpointSet(null);
  let made = 0;
  const plan = (key: string) => set.remembered(key, () => (made += 1));
  t.is(plan('a'), plan('a'));
  set.put({ workload: workload({ uid: 'w' }), ports: {} });
  t.is(plan('a'), 2);
  for (let index = 0; index < 64; index += 1) plan(`p${index}`);
  t.is(plan('a'), 67);
});
