/** Tests the outbound decision procedure, rule by rule (docs/spec/dataplane.md §2.1 to §2.5). */
import test from 'ava';
import type { Service, Workload } from '../../../../lib/state/model.ts';
import { decideOutbound, withResolvedIp } from '../../../../lib/state/routing.ts';
import type { OutboundDecision, OutboundRequest } from '../../../../lib/state/routing.ts';
import { FetchedView, service, viewOf, vip, workload } from '../../../support/mesh-kit.ts';

const source = workload({
  uid: 'c//Pod/demo/client',
  serviceAccount: 'client',
  addresses: ['10.0.0.2', 'fd00::2'],
});
const KEY = 'demo/web.demo';
const web = service({ hostname: 'web.demo', addresses: [vip('10.96.0.1'), vip('fd00:96::1')] });
const pod = workload({
  uid: 'c//Pod/demo/web-1',
  serviceAccount: 'web',
  addresses: ['10.0.1.3', 'fd00::3'],
  node: 'node-2',
  services: { [KEY]: { 80: 8080 } },
});
const POD_IDENTITY = 'spiffe://cluster.local/ns/demo/sa/web';
const byHostname = (hostname: string, hboneMtlsPort = 15_008) => ({
  destination: { kind: 'hostname' as const, namespace: 'demo', hostname },
  hboneMtlsPort,
});
const byIp = (ip: string, hboneMtlsPort = 15_008, network = '') => ({
  destination: { kind: 'address' as const, network, ip },
  hboneMtlsPort,
});
const waypointService = service({
  hostname: 'waypoint.demo',
  addresses: [vip('10.96.0.50')],
  ports: { 15008: 15_008 },
  subjectAltNames: ['spiffe://cluster.local/ns/demo/sa/waypoint-alt'],
});
const waypointPod = workload({
  uid: 'c//Pod/demo/waypoint-1',
  serviceAccount: 'waypoint',
  addresses: ['10.0.1.50'],
  services: { 'demo/waypoint.demo': { 15008: 15_008 } },
});
const waypoint: readonly (Workload | Service)[] = [waypointService, waypointPod];

const request = (
  ip: string,
  port: number,
  parts: Partial<OutboundRequest> = {},
): OutboundRequest => ({
  source,
  sourceIp: '10.0.0.2',
  target: { ip, port },
  illegalPorts: new Set([15_001, 15_006, 15_008]),
  network: '',
  random: () => 0,
  ...parts,
});
const decide = (
  mesh: readonly (Workload | Service)[],
  ip: string,
  port: number,
  parts: Partial<OutboundRequest> = {},
): OutboundDecision => decideOutbound(viewOf([source, ...mesh]), request(ip, port, parts));

// spec: dataplane.md §2.1.1
test("2.1.1 the proxy's own ports on loopback are refused, on other addresses not", (t) => {
  for (const ip of ['127.0.0.1', '127.9.9.9', '::1']) {
    t.like(decide([], ip, 15_008), { kind: 'deny', code: 'ROUTE_ILLEGAL' });
  }
  t.is(decide([], '127.0.0.1', 8080).kind, 'passthrough');
  t.is(decide([], '10.0.0.2', 15_008).kind, 'hbone');
});

// spec: dataplane.md §2.1.3
test('2.1.3 an address that is both a workload and a VIP is not service addressed, and still balanced (step 5)', (t) => {
  const both = service({
    hostname: 'both.demo',
    addresses: [vip('10.0.1.9')],
    waypoint: byHostname('waypoint.demo'),
  });
  const owner = workload({ uid: 'c//Pod/demo/owner', addresses: ['10.0.1.9'] });
  const member = { ...pod, services: { 'demo/both.demo': { 80: 8081 } } };
  const decision = decide([both, owner, member, ...waypoint], '10.0.1.9', 80);
  t.like(decision, { kind: 'hbone', via: 'direct', authority: '10.0.1.3:8081' });
});

// spec: dataplane.md §2.1.4
test('2.1.4 a service with a waypoint goes there, its own VIP as authority', (t) => {
  const decision = decide(
    [{ ...web, waypoint: byHostname('waypoint.demo') }, pod, ...waypoint],
    '10.96.0.1',
    80,
  );
  t.like(decision, {
    kind: 'hbone',
    via: 'waypoint',
    peer: { ip: '10.0.1.50', port: 15_008, resolve: null },
    authority: '10.96.0.1:80',
    expectedSans: [
      'spiffe://cluster.local/ns/demo/sa/waypoint-alt',
      'spiffe://cluster.local/ns/demo/sa/waypoint',
    ],
  });
  t.is(decision.kind === 'hbone' ? decision.workload.uid : '', waypointPod.uid);
  t.is(decision.kind === 'hbone' ? decision.service?.hostname : '', 'web.demo');
});

// spec: dataplane.md §2.1.4
test('2.1.4 the port need not exist on a service with a waypoint', (t) => {
  const decision = decide(
    [{ ...web, waypoint: byHostname('waypoint.demo') }, ...waypoint],
    '10.96.0.1',
    9999,
  );
  t.like(decision, { kind: 'hbone', via: 'waypoint', authority: '10.96.0.1:9999' });
});

// spec: dataplane.md §2.1.4
test('2.1.4 weighted waypoints are drawn by weight and go before the single one', (t) => {
  const second = workload({ uid: 'c//Pod/demo/wp-2', addresses: ['10.0.1.51'] });
  const weighted = {
    ...web,
    waypoint: byIp('10.0.1.52'),
    weightedWaypoints: [
      { destination: byIp('10.0.1.50'), weight: 1 },
      { destination: byIp('10.0.1.51'), weight: 3 },
    ],
  };
  const to = (random: number) => {
    const decision = decide([weighted, waypointPod, second], '10.96.0.1', 80, {
      random: () => random,
    });
    return decision.kind === 'hbone' ? decision.peer.ip : decision.kind;
  };
  t.deepEqual([0, 0.24, 0.26, 0.99].map(to), ['10.0.1.50', '10.0.1.50', '10.0.1.51', '10.0.1.51']);
});

// spec: dataplane.md §2.1.4
test('2.1.4 weighted waypoints that all weigh nothing fall back to the single one', (t) => {
  const weighted = {
    ...web,
    waypoint: byIp('10.0.1.50'),
    weightedWaypoints: [{ destination: byIp('10.0.1.51'), weight: 0 }],
  };
  t.like(decide([weighted, waypointPod], '10.96.0.1', 80), { peer: { ip: '10.0.1.50' } });
});

// spec: dataplane.md §2.1.4
test('2.1.4 a waypoint that cannot be resolved fails the connection', (t) => {
  const decision = decide([{ ...web, waypoint: byHostname('gone.demo') }, pod], '10.96.0.1', 80);
  t.like(decision, { kind: 'deny', code: 'ROUTE_NO_UPSTREAM' });
  t.regex(
    decision.kind === 'deny' ? decision.reason : '',
    /unknown waypoint demo\/gone\.demo:15008/,
  );
});

// spec: dataplane.md §2.1.5
test('2.1.5 a service is balanced and its port translated', (t) => {
  t.like(decide([web, pod], '10.96.0.1', 80), {
    kind: 'hbone',
    via: 'direct',
    peer: { ip: '10.0.1.3', port: 15_008 },
    authority: '10.0.1.3:8080',
    expectedSans: [POD_IDENTITY],
    sameNode: false,
  });
  t.like(decide([web, pod], 'fd00:96::1', 80), { authority: '[fd00::3]:8080' });
});

// spec: dataplane.md §2.1.5
test('2.1.5 a workload keeps the port', (t) => {
  const decision = decide([pod], '10.0.1.3', 9000);
  t.like(decision, { kind: 'hbone', authority: '10.0.1.3:9000' });
  t.is(decision.kind === 'hbone' ? decision.service : undefined, null);
});

// spec: dataplane.md §2.1.6
test('2.1.6 a service without a healthy endpoint fails, as does an undefined port', (t) => {
  t.like(decide([web], '10.96.0.1', 80), { kind: 'deny', code: 'ROUTE_NO_UPSTREAM' });
  const undefinedPort = decide([web, pod], '10.96.0.1', 81);
  t.regex(undefinedPort.kind === 'deny' ? undefinedPort.reason : '', /does not define port 81/);
});

// spec: dataplane.md §2.1.6
test('2.1.6 a PASSTHROUGH service and an unknown address pass through', (t) => {
  const balancing = {
    routingPreference: [],
    mode: 'PASSTHROUGH',
    healthPolicy: 'ONLY_HEALTHY',
  } as const;
  t.like(decide([{ ...web, loadBalancing: balancing }, pod], '10.96.0.1', 80), {
    kind: 'passthrough',
    peer: { ip: '10.96.0.1', port: 80 },
  });
  t.like(decide([], '192.0.2.1', 443), {
    kind: 'passthrough',
    peer: { ip: '192.0.2.1', port: 443 },
  });
});

// spec: dataplane.md §2.1.6
test('2.1.6 a node address of a host-network pod is an unknown destination', (t) => {
  const host = workload({
    uid: 'c//Pod/demo/host',
    addresses: ['10.200.0.11'],
    networkMode: 'HOST_NETWORK',
  });
  t.is(decide([host], '10.200.0.11', 80).kind, 'passthrough');
});

const gateway = workload({ uid: 'c//Pod/demo/gw', serviceAccount: 'gw', addresses: ['10.0.9.9'] });
const remote = workload({
  uid: 'r//Pod/demo/web-9',
  network: 'n2',
  networkGateway: byIp('10.0.9.9', 15_008),
  services: { [KEY]: { 80: 8080 } },
});

// spec: dataplane.md §2.1.7
test('2.1.7 and 2.5 an endpoint on another network is reached through its gateway', (t) => {
  const sans = ['spiffe://cluster.local/ns/demo/sa/web'];
  const decision = decide([{ ...web, subjectAltNames: sans }, remote, gateway], '10.96.0.1', 80);
  t.like(decision, {
    kind: 'double-hbone',
    peer: { ip: '10.0.9.9', port: 15_008 },
    authority: 'web.demo:80',
    expectedSans: ['spiffe://cluster.local/ns/demo/sa/gw'],
    innerSans: sans,
  });
  t.is(decision.kind === 'double-hbone' ? decision.workload.uid : '', remote.uid);
});

// spec: dataplane.md §2.1.7, spec: dataplane.md §2.5.1
test('2.1.7 another network fails without a gateway, and for a target that is no service of its own', (t) => {
  const lonely = decide([web, { ...remote, networkGateway: null }], '10.96.0.1', 80);
  t.is(lonely.kind, 'deny');
  const far = decide(
    [web, { ...remote, networkGateway: null, addresses: ['10.7.7.7'] }],
    '10.96.0.1',
    80,
  );
  t.regex(far.kind === 'deny' ? far.reason : '', /has no gateway/);
  const owner = workload({ uid: 'c//Pod/demo/owner', addresses: ['10.96.0.1'] });
  const both = decide([web, remote, gateway, owner], '10.96.0.1', 80);
  t.regex(both.kind === 'deny' ? both.reason : '', /no service leads there/);
});

// spec: dataplane.md §2.5.2
test('2.5.2 a gateway is found by name too, with the identities of its service; an unknown one fails', (t) => {
  const front = service({
    hostname: 'gw.demo',
    ports: { 15_010: 15_011 },
    subjectAltNames: ['spiffe://cluster.local/ns/demo/sa/gw-alt'],
  });
  const behind = { ...gateway, services: { 'demo/gw.demo': {} } };
  const named = { ...remote, networkGateway: byHostname('gw.demo', 15_010) };
  t.like(decide([web, named, front, behind], '10.96.0.1', 80), {
    kind: 'double-hbone',
    peer: { ip: '10.0.9.9', port: 15_011 },
    expectedSans: [
      'spiffe://cluster.local/ns/demo/sa/gw-alt',
      'spiffe://cluster.local/ns/demo/sa/gw',
    ],
  });
  const decision = decide([web, remote], '10.96.0.1', 80);
  t.regex(decision.kind === 'deny' ? decision.reason : '', /unknown gateway \/10\.0\.9\.9:15008/);
});

// spec: dataplane.md §2.1.4, spec: dataplane.md §2.5
test("2.1.4 and 2.5 a waypoint on another network is reached through its gateway, and only its service's identities count inside", (t) => {
  const far = { ...waypointPod, network: 'n2', addresses: [], networkGateway: byIp('10.0.9.9') };
  const decision = decide(
    [{ ...web, waypoint: byHostname('waypoint.demo') }, waypointService, far, gateway],
    '10.96.0.1',
    80,
  );
  t.like(decision, {
    kind: 'double-hbone',
    authority: 'web.demo:80',
    innerSans: ['spiffe://cluster.local/ns/demo/sa/waypoint-alt'],
  });
});

// spec: dataplane.md §2.1.8
test("2.1.8 a workload's own waypoint is used for its address, not for its service", (t) => {
  const guarded = { ...pod, waypoint: byHostname('waypoint.demo') };
  t.like(decide([web, guarded, ...waypoint], '10.0.1.3', 9000), {
    kind: 'hbone',
    via: 'waypoint',
    authority: '10.0.1.3:9000',
  });
  t.like(decide([web, guarded, ...waypoint], '10.96.0.1', 80), { via: 'direct' });
});

// spec: dataplane.md §2.1.8
test('2.1.8 the waypoint itself goes on to the workload; another address or identity does not', (t) => {
  const mesh = [{ ...pod, waypoint: byHostname('waypoint.demo') }, ...waypoint];
  const from = { source: waypointPod, sourceIp: '10.0.1.50' };
  t.like(decide(mesh, '10.0.1.3', 9000, from), { via: 'direct' });
  t.like(decide(mesh, '10.0.1.3', 9000, { ...from, sourceIp: '10.0.1.99' }), { via: 'waypoint' });
  const other = { ...waypointPod, serviceAccount: 'other' };
  t.like(decide(mesh, '10.0.1.3', 9000, { ...from, source: other }), { via: 'waypoint' });
});

// spec: dataplane.md §2.1.8
test("2.1.8 a workload's waypoint that cannot be resolved fails the connection", (t) => {
  t.like(decide([{ ...pod, waypoint: byHostname('gone.demo') }], '10.0.1.3', 80), { kind: 'deny' });
});

// spec: dataplane.md §2.1.9
test('2.1.9 a workload without HBONE gets plain TCP to its own port', (t) => {
  t.like(decide([web, { ...pod, tunnelProtocol: 'NONE' }], '10.96.0.1', 80), {
    kind: 'tcp',
    peer: { ip: '10.0.1.3', port: 8080 },
  });
});

// spec: dataplane.md §2.1.9
test("2.1.9 identities of the service are accepted beside the workload's, and the HBONE port follows the setting", (t) => {
  const named = { ...web, subjectAltNames: ['spiffe://x/ns/y/sa/z', POD_IDENTITY] };
  t.like(decide([named, pod], '10.96.0.1', 80, { hbonePort: 25_008 }), {
    expectedSans: ['spiffe://x/ns/y/sa/z', POD_IDENTITY],
    peer: { port: 25_008 },
  });
});

// spec: dataplane.md §2.1.9
test('2.1.9 a destination on the same node is marked', (t) => {
  t.like(decide([web, { ...pod, node: 'node-1' }], '10.96.0.1', 80), { sameNode: true });
  t.like(decide([web, { ...pod, node: 'node-1', clusterId: 'other' }], '10.96.0.1', 80), {
    sameNode: false,
  });
});

// spec: dataplane.md §2.3
test('2.3 a waypoint by address prefers a service with that VIP, else the workload with the given port', (t) => {
  const byVip = decide([{ ...web, waypoint: byIp('10.96.0.50') }, ...waypoint], '10.96.0.1', 80);
  t.like(byVip, { peer: { ip: '10.0.1.50', port: 15_008 } });
  const byPod = decide(
    [{ ...web, waypoint: byIp('10.0.1.50', 15_080) }, waypointPod],
    '10.96.0.1',
    80,
  );
  t.like(byPod, {
    peer: { ip: '10.0.1.50', port: 15_080 },
    expectedSans: ['spiffe://cluster.local/ns/demo/sa/waypoint'],
  });
});

// spec: dataplane.md §2.3
test('2.3 a waypoint by hostname may be a workload with that hostname in that namespace', (t) => {
  const external = workload({ uid: 'x/wp', hostname: 'wp.example', addresses: ['10.0.8.8'] });
  const to = (hostname: string) =>
    decide([{ ...web, waypoint: byHostname(hostname, 15_010) }, external], '10.96.0.1', 80);
  t.like(to('wp.example'), { peer: { ip: '10.0.8.8', port: 15_010 } });
  t.is(to('other.example').kind, 'deny');
});

// spec: dataplane.md §2.3
test("2.3 the family of the waypoint's address follows the client's target for hostnames, the reference for addresses", (t) => {
  const dual = { ...waypointPod, addresses: ['10.0.1.50', 'fd00::50'] };
  const viaName = decide(
    [{ ...web, waypoint: byHostname('waypoint.demo') }, waypointService, dual],
    'fd00:96::1',
    80,
  );
  t.like(viaName, { peer: { ip: 'fd00::50' }, authority: '[fd00:96::1]:80' });
  const viaIp = decide(
    [{ ...web, waypoint: byIp('10.96.0.50') }, waypointService, dual],
    'fd00:96::1',
    80,
  );
  t.like(viaIp, { peer: { ip: '10.0.1.50' } });
});

// spec: dataplane.md §2.4
test("2.4 a network gateway is ignored on the caller's own network", (t) => {
  t.like(decide([{ ...pod, networkGateway: byIp('10.0.9.9') }], '10.0.1.3', 80), {
    kind: 'hbone',
    via: 'direct',
  });
});

// spec: dataplane.md §6.4
test('6.4 a workload with a hostname leaves its address to be resolved, then the decision is complete', (t) => {
  const external = workload({
    uid: 'x/ext',
    hostname: 'ext.example',
    services: { [KEY]: { 80: 443 } },
  });
  const decision = decide([web, external], '10.96.0.1', 80);
  t.like(decision, {
    kind: 'hbone',
    peer: { ip: null, port: 15_008, resolve: { hostname: 'ext.example', preferredFamily: 4 } },
    authority: null,
    targetPort: 443,
  });
  if (decision.kind !== 'hbone') return;
  t.like(withResolvedIp(decision, '192.0.2.7'), {
    peer: { ip: '192.0.2.7', resolve: null },
    authority: '192.0.2.7:443',
  });
  t.like(decide([web, { ...external, tunnelProtocol: 'NONE' }], 'fd00:96::1', 80), {
    kind: 'tcp',
    peer: { port: 443, resolve: { preferredFamily: 6 } },
  });
});

test('an endpoint that was just tried is chosen again only without others', (t) => {
  const other = { ...pod, uid: 'c//Pod/demo/web-2', addresses: ['10.0.1.4'] };
  const except = new Set([pod.uid]);
  t.like(decide([web, pod, other], '10.96.0.1', 80, { except }), { peer: { ip: '10.0.1.4' } });
  t.like(decide([web, pod], '10.96.0.1', 80, { except }), { peer: { ip: '10.0.1.3' } });
});

test('what the view cannot tell is asked for, never guessed: each fetch brings the decision further', (t) => {
  const guarded = { ...web, waypoint: byHostname('waypoint.demo') };
  const view = new FetchedView([source, guarded, pod, ...waypoint]);
  const asked: string[] = [];
  let decision = decideOutbound(view, request('10.96.0.1', 80));
  while (decision.kind === 'need') {
    t.true(decision.keys.length > 0 && asked.length < 5);
    asked.push(decision.keys.map(({ kind }) => kind).join('+'));
    view.fetch(decision.keys);
    decision = decideOutbound(view, request('10.96.0.1', 80));
  }
  t.deepEqual(asked, ['address', 'service']);
  t.like(decision, { kind: 'hbone', via: 'waypoint' });
});

test("both networks are asked for at once when the proxy's and the source's differ", (t) => {
  const decision = decideOutbound(
    new FetchedView([]),
    request('10.96.0.1', 80, { network: 'a', source: { ...source, network: 'b' } }),
  );
  t.is(decision.kind === 'need' ? decision.keys.length : 0, 2);
});
