/** The outbound decision against the procedure written once more, on meshes made by chance. */
import test from 'ava';
import * as fc from 'fast-check';
import type { GatewayAddress, LoadBalancing, Service, Workload } from '../../lib/state/model.ts';
import { serviceKey } from '../../lib/state/model.ts';
import { decideOutbound } from '../../lib/state/routing.ts';
import type { OutboundRequest } from '../../lib/state/routing.ts';
import { FetchedView, service, viewOf, vip, workload } from '../support/mesh-kit.ts';
import { naiveOutcomes, outcomeOf } from '../support/naive-routing.ts';

const RUNS = 900;
/** Longest honest chain of questions, see MAX_DECISION_ROUNDS of the listener. */
const MAX_ROUNDS = 12;

const networks = ['', 'n2'];
const namespaces = ['demo', 'other'];
const hosts = ['web.demo', 'api.demo', 'wp.demo'];
const podIps = ['10.0.0.1', '10.0.0.2', '10.0.0.3', 'fd00::1', 'fd00::2'];
const vips = ['10.96.0.1', '10.96.0.2', 'fd96::1'];
const ports = [80, 81, 15_008];
const san = (account: string): string => `spiffe://cluster.local/ns/demo/sa/${account}`;

const one = fc.constantFrom;
const reference: fc.Arbitrary<GatewayAddress> = fc.record({
  destination: fc.oneof(
    fc.record({
      kind: one('hostname' as const),
      namespace: one(...namespaces),
      hostname: one(...hosts, 'ext.example'),
    }),
    fc.record({
      kind: one('address' as const),
      network: one(...networks),
      ip: one(...podIps, ...vips),
    }),
  ),
  hboneMtlsPort: one(...ports),
});
const maybeReference = fc.option(reference, { nil: null, freq: 2 });
const portMap = (values: number[]) =>
  fc.dictionary(one(...ports.map(String)), one(...values), { maxKeys: 3 });
const place = one('', 'a', 'b');

const workloads = fc
  .array(
    fc.record({
      isPod: fc.boolean(),
      namespace: one(...namespaces),
      addresses: fc.subarray(podIps, { maxLength: 3 }),
      hostname: one('', '', 'ext.example'),
      network: one(...networks),
      tunnelProtocol: one('NONE' as const, 'HBONE' as const),
      serviceAccount: one('x', 'y'),
      waypoint: maybeReference,
      networkGateway: maybeReference,
      applicationTunnel: one(
        null,
        null,
        { protocol: 'NONE' as const, port: 0 },
        { protocol: 'PROXY' as const, port: 15_088 },
      ),
      services: fc.dictionary(
        one(...namespaces.flatMap((ns) => hosts.map((host) => `${ns}/${host}`))),
        portMap([8080, 9090]),
        { maxKeys: 4 },
      ),
      status: one('HEALTHY' as const, 'HEALTHY' as const, 'UNHEALTHY' as const),
      networkMode: one('STANDARD' as const, 'STANDARD' as const, 'HOST_NETWORK' as const),
      capacity: one(0, 1, 3),
      node: place,
      clusterId: place,
      locality: fc.record({ region: place, zone: place, subzone: place }),
    }),
    { maxLength: 6 },
  )
  .map((all) =>
    all.map(({ isPod, ...fields }, index) =>
      workload({ ...fields, uid: isPod ? `c//Pod/demo/w${index}` : `c/entry/w${index}` }),
    ),
  );

const balancing: fc.Arbitrary<LoadBalancing> = fc.record({
  routingPreference: fc.shuffledSubarray([
    'REGION' as const,
    'ZONE' as const,
    'SUBZONE' as const,
    'NODE' as const,
    'CLUSTER' as const,
    'NETWORK' as const,
  ]),
  mode: one('UNSPECIFIED' as const, 'STRICT' as const, 'FAILOVER' as const, 'PASSTHROUGH' as const),
  healthPolicy: one('ONLY_HEALTHY' as const, 'ALLOW_ALL' as const),
});
const address = fc.oneof(
  fc
    .record({ ip: one(...vips, ...podIps), network: one(...networks) })
    .map(({ ip, network }) => vip(ip, network)),
  one(
    vip('10.96.0.0', '', 24),
    vip('10.96.0.0', '', 30),
    vip('fd96::', '', 64),
    vip('10.96.0.1', '', 32),
  ),
);
const services = fc
  .uniqueArray(
    fc.record({
      namespace: one(...namespaces),
      hostname: one(...hosts),
      addresses: fc.array(address, { maxLength: 3 }),
      ports: portMap([0, 8080]),
      subjectAltNames: fc.subarray([san('x'), san('alt')]),
      waypoint: maybeReference,
      weightedWaypoints: fc.array(fc.record({ destination: reference, weight: one(0, 1, 5) }), {
        maxLength: 2,
      }),
      loadBalancing: fc.option(balancing, { nil: null }),
      ipFamilies: one(
        'AUTOMATIC' as const,
        'IPV4_ONLY' as const,
        'IPV6_ONLY' as const,
        'DUAL' as const,
      ),
      canonical: fc.boolean(),
      visibility: one('PUBLIC' as const, 'NAMESPACE' as const),
    }),
    { maxLength: 5, selector: serviceKey },
  )
  .map((all) => all.map((fields) => service(fields)));

const asked = fc.record({
  ip: one(...podIps, ...vips, '10.96.0.77', '192.0.2.1', '127.0.0.1', '::1'),
  port: one(...ports),
  network: one(...networks),
  sourceNetwork: one('', '', 'n2'),
  sourceNamespace: one(...namespaces),
  sourceAccount: one('x', 'y'),
  sourceIp: one(...podIps),
  chance: fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
});

function requestOf(parts: typeof asked extends fc.Arbitrary<infer T> ? T : never): OutboundRequest {
  const source = workload({
    uid: 'c//Pod/demo/source',
    namespace: parts.sourceNamespace,
    serviceAccount: parts.sourceAccount,
    network: parts.sourceNetwork,
    node: 'a',
    clusterId: 'a',
    locality: { region: 'a', zone: 'a', subzone: 'a' },
  });
  return {
    source,
    sourceIp: parts.sourceIp,
    target: { ip: parts.ip, port: parts.port },
    illegalPorts: new Set([15_001, 15_006, 15_008]),
    network: parts.network,
    random: () => parts.chance,
  };
}

// spec: dataplane.md §2.1, spec: dataplane.md §2.3, spec: dataplane.md §2.5, spec: dataplane.md §3
// spec: dataplane.md §4, spec: dataplane.md §5, spec: dataplane.md §6
test('every decision is one that the procedure allows', (t) => {
  fc.assert(
    fc.property(workloads, services, asked, (w, s, parts) => {
      const request = requestOf(parts);
      const decision = decideOutbound(viewOf([...w, ...s]), request);
      const allowed = naiveOutcomes({ workloads: w, services: s }, request);
      const got = outcomeOf(decision);
      if (!allowed.has(got)) throw new Error(`${got}\nnot among\n${[...allowed].join('\n')}`);
    }),
    { numRuns: RUNS },
  );
  // Which meshes come up above is chance; that every way out is among them is shown on fixed ones.
  const meshes = fc.sample(fc.tuple(workloads, services, asked), { seed: 2, numRuns: RUNS });
  const seen = new Set(
    meshes.map(([w, s, parts]) => decideOutbound(viewOf([...w, ...s]), requestOf(parts)).kind),
  );
  t.deepEqual([...seen].toSorted(), ['deny', 'double-hbone', 'hbone', 'passthrough', 'tcp']);
});

test('a decision that has to ask for everything it needs is the same', (t) => {
  fc.assert(
    fc.property(workloads, services, asked, (w, s, parts) => {
      const mesh: (Workload | Service)[] = [...w, ...s];
      const request = requestOf(parts);
      const view = new FetchedView(mesh);
      let decision = decideOutbound(view, request);
      for (let round = 0; decision.kind === 'need'; round += 1) {
        if (round >= MAX_ROUNDS) throw new Error('it never has enough');
        view.fetch(decision.keys);
        decision = decideOutbound(view, request);
      }
      const knowing = decideOutbound(viewOf(mesh), request);
      if (outcomeOf(knowing) !== outcomeOf(decision))
        throw new Error('it depends on what is known');
    }),
    { numRuns: RUNS / 3 },
  );
  t.pass();
});
