/** Any order of changes that ends in the same rows gives the same answers, and every changed answer is named. */
import test from 'ava';
import * as fc from 'fast-check';
import type { Service, Workload } from '../../lib/state/model.ts';
import { PackedStore } from '../../lib/state/packed-store.ts';
import { lookupId } from '../../lib/state/view.ts';
import type { LookupKey } from '../../lib/state/view.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';
import { encode, service, vip, workload } from '../support/mesh-kit.ts';

const ips = ['10.0.0.1', '10.0.0.2', '10.0.1.1', 'fd00::1'];
const hostnames = ['web.demo', 'api.demo'];
const namespaces = ['demo', 'other'];
const uids = ['c//Pod/demo/a', 'c//Pod/demo/b', 'c/entry'];
const serviceKeys = namespaces.flatMap((ns) => hostnames.map((host) => `${ns}/${host}`));

const some = <T>(items: readonly T[]) => fc.subarray([...items]);
const workloadArbitrary: fc.Arbitrary<Workload> = fc
  .record({
    uid: fc.constantFrom(...uids),
    namespace: fc.constantFrom(...namespaces),
    addresses: some(ips),
    hostname: fc.constantFrom('', 'web.demo'),
    network: fc.constantFrom('', 'n2'),
    tunnelProtocol: fc.constantFrom('NONE' as const, 'HBONE' as const),
    status: fc.constantFrom('HEALTHY' as const, 'UNHEALTHY' as const),
    networkMode: fc.constantFrom('STANDARD' as const, 'STANDARD' as const, 'HOST_NETWORK' as const),
    services: some(serviceKeys).map((keys) =>
      Object.fromEntries(keys.map((key) => [key, { 80: 8080 }])),
    ),
  })
  .map((fields) => workload(fields));
const address = fc.oneof(
  fc.constantFrom(...ips).map((ip) => vip(ip)),
  fc.constantFrom(vip('10.0.0.0', '', 24), vip('10.0.0.0', '', 8), vip('fd00::', '', 64)),
);
const serviceArbitrary: fc.Arbitrary<Service> = fc
  .record({
    hostname: fc.constantFrom(...hostnames),
    namespace: fc.constantFrom(...namespaces),
    addresses: fc.array(address, { maxLength: 3 }),
    canonical: fc.boolean(),
    loadBalancing: fc.constantFrom(null, {
      routingPreference: [],
      mode: 'UNSPECIFIED' as const,
      healthPolicy: 'ALLOW_ALL' as const,
    }),
  })
  .map((fields) => service(fields));

const rowName = fc.constantFrom(...uids, ...serviceKeys, 'alias-1', 'alias-2');
const change = fc.tuple(rowName, fc.oneof(fc.constant(null), workloadArbitrary, serviceArbitrary));

const keys: LookupKey[] = [
  ...['', 'n2'].flatMap((network) =>
    [...ips, '10.0.0.99', '10.77.0.1', 'fd00::77'].map((ip) => ({
      kind: 'address' as const,
      network,
      ip,
    })),
  ),
  ...namespaces.flatMap((namespace) =>
    hostnames.map((hostname) => ({ kind: 'service' as const, namespace, hostname })),
  ),
  ...hostnames.map((hostname) => ({ kind: 'hostname' as const, hostname })),
  ...uids.map((uid) => ({ kind: 'uid' as const, uid })),
];
const answers = (store: PackedStore): Map<string, string> =>
  new Map(
    keys.map((key) => {
      const { workloads, services } = store.lookup(key);
      const listed = services.map(({ service: one, endpoints }) => [one, [...endpoints]]);
      return [lookupId(key), JSON.stringify([workloads, listed])];
    }),
  );
const heads = (store: PackedStore): Map<string, string> =>
  new Map(keys.map((key) => [lookupId(key), JSON.stringify(store.head(key))]));
const endpoints = (store: PackedStore): Map<string, string> =>
  new Map(
    serviceKeys.flatMap((key) =>
      uids.map((uid) => [`${key} ${uid}`, JSON.stringify(store.endpoint(key, uid))] as const),
    ),
  );

test('any interleaving that ends in the same rows gives the same answers', (t) => {
  fc.assert(
    fc.property(
      fc.array(change, { maxLength: 30 }),
      fc.infiniteStream(fc.nat({ max: 1_000 })),
      (changes, order) => {
        const lived = new PackedStore(decodeAddress);
        const rows = new Map<string, Uint8Array>();
        for (const [name, resource] of changes) {
          const bytes = resource === null ? null : encode(resource);
          lived.apply(name, bytes);
          if (bytes === null) rows.delete(name);
          else rows.set(name, bytes);
        }
        const shuffled = [...rows]
          .map((row) => ({ row, at: order.next().value as number }))
          .sort((left, right) => left.at - right.at);
        const fresh = new PackedStore(decodeAddress);
        for (const { row } of shuffled) fresh.apply(...row);
        t.deepEqual(answers(lived), answers(fresh));
      },
    ),
    { numRuns: 300 },
  );
});

test('an answer that a change alters is named as stale', (t) => {
  fc.assert(
    fc.property(fc.array(change, { maxLength: 25 }), (changes) => {
      const told = new Set<string>();
      const store = new PackedStore(decodeAddress, {
        endpointChanged: (service, uid) => told.add(`${service} ${uid}`),
      });
      let before = heads(store);
      let endpointsBefore = endpoints(store);
      for (const [name, resource] of changes) {
        const stale = store.apply(name, resource === null ? null : encode(resource));
        const after = heads(store);
        for (const [id, answer] of after) {
          if (answer !== before.get(id)) t.true(stale === null || stale.includes(id), id);
        }
        before = after;
        const endpointsAfter = endpoints(store);
        for (const [which, endpoint] of endpointsAfter) {
          if (endpoint === endpointsBefore.get(which)) continue;
          // A service that comes, goes or changes names all answers it is in.
          const [key = ''] = which.split(' ');
          t.true(told.has(which) || stale === null || stale.includes(`service:${key}`), which);
        }
        told.clear();
        endpointsBefore = endpointsAfter;
      }
    }),
    { numRuns: 300 },
  );
});
