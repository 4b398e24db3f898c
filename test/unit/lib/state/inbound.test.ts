/** Tests docs/spec/dataplane.md §7.2 to §7.6 and §8, rule by rule. */
import test from 'ava';
import {
  checkPlaintextDestination,
  parseAuthority,
  resolveUpstream,
  telemetryService,
  validateDestination,
} from '../../../../lib/state/inbound.ts';
import type { Authority, InboundStream } from '../../../../lib/state/inbound.ts';
import type { Service, Workload } from '../../../../lib/state/model.ts';
import { FetchedView, service, viewOf, vip, workload } from '../../../support/mesh-kit.ts';

const pod = workload({
  uid: 'c//Pod/demo/web-1',
  addresses: ['10.0.0.9'],
  services: { 'demo/web.demo': { 80: 8080 } },
});
const web = service({ hostname: 'web.demo', addresses: [vip('10.96.0.1')] });
const settings = { illegalPorts: new Set([15_001, 15_006, 15_008]), localhostAppTunnel: true };
const stream = (authority: string, parts: Partial<InboundStream> = {}): InboundStream => ({
  authority: parseAuthority(authority) as Authority,
  localIp: '10.0.0.9',
  workload: pod,
  ...parts,
});
const valid = (mesh: readonly (Workload | Service)[], item: InboundStream) =>
  validateDestination(viewOf([pod, ...mesh]), item);
const resolve = (
  mesh: readonly (Workload | Service)[],
  item: InboundStream,
  services: Service[] = [web],
) => resolveUpstream(viewOf([pod, ...mesh]), item, services, settings);

// spec: dataplane.md §7.2.2
test('7.2.2 an authority is ip:port, [v6]:port or host:port, both parts required', (t) => {
  t.deepEqual(parseAuthority('10.0.0.1:80'), { kind: 'ip', ip: '10.0.0.1', port: 80 });
  t.deepEqual(parseAuthority('[fd00::1]:80'), { kind: 'ip', ip: 'fd00::1', port: 80 });
  t.deepEqual(parseAuthority('[::ffff:10.0.0.1]:80'), { kind: 'ip', ip: '10.0.0.1', port: 80 });
  t.deepEqual(parseAuthority('web.demo:80'), { kind: 'hostname', hostname: 'web.demo', port: 80 });
  for (const bad of ['', 'web', ':80', 'web:', '10.0.0.1', 'fd00::1:80:x', 'web:99999', 'a b:80']) {
    t.is(parseAuthority(bad), null, bad);
  }
});

// spec: dataplane.md §7.3.1, spec: dataplane.md §7.3.2
test('7.3.1 and 7.3.2 a hostname, and the dialled address, are accepted', (t) => {
  t.is(valid([], stream('anything.example:1')), null);
  t.is(valid([], stream('10.0.0.9:80')), null);
});

// spec: dataplane.md §7.3.3
test('7.3.3 a workload with an application tunnel is not validated', (t) => {
  const applicationTunnel = { protocol: 'NONE', port: 0 } as const;
  t.is(valid([], stream('10.9.9.9:80', { workload: { ...pod, applicationTunnel } })), null);
});

const named = (hostname: string) => ({
  destination: { kind: 'hostname' as const, namespace: 'demo', hostname },
  hboneMtlsPort: 15_008,
});
const byIp = (ip: string) => ({
  destination: { kind: 'address' as const, network: '', ip },
  hboneMtlsPort: 15_008,
});
const backend = workload({ uid: 'c//Pod/demo/b', addresses: ['10.0.0.20'] });

// spec: dataplane.md §7.3.4
test('7.3.4 another address is accepted where its waypoint is a service of this workload, or this workload', (t) => {
  const other = stream('10.0.0.20:80');
  t.is(valid([web, { ...backend, waypoint: named('web.demo') }], other), null);
  t.is(valid([web, { ...backend, waypoint: byIp('10.96.0.1') }], other), null);
  t.is(valid([{ ...backend, waypoint: byIp('10.0.0.9') }], other), null);
  const guarded = service({
    hostname: 'g.demo',
    addresses: [vip('10.96.0.3')],
    waypoint: named('web.demo'),
  });
  t.is(valid([web, guarded], stream('10.96.0.3:80')), null);
});

// spec: dataplane.md §7.3.4
test('7.3.4 everything else is a mismatch; weighted waypoints do not count', (t) => {
  const other = stream('10.0.0.20:80');
  const mismatch = { kind: 'deny', code: 'ROUTE_MISMATCH' } as const;
  t.like(valid([], other), mismatch);
  t.like(valid([backend], other), mismatch);
  t.like(valid([{ ...backend, waypoint: named('gone.demo') }], other), mismatch);
  t.like(valid([{ ...backend, waypoint: byIp('10.0.0.77') }], other), mismatch);
  const weighted = service({
    hostname: 'g.demo',
    addresses: [vip('10.96.0.3')],
    weightedWaypoints: [{ destination: named('web.demo'), weight: 1 }],
  });
  t.like(valid([web, weighted], stream('10.96.0.3:80')), mismatch);
});

// spec: dataplane.md §7.3.4
test('7.3.4 what the view cannot tell is asked for', (t) => {
  const view = new FetchedView([pod, web, { ...backend, waypoint: named('web.demo') }]);
  const first = validateDestination(view, stream('10.0.0.20:80'));
  if (first?.kind !== 'need') return t.fail();
  view.fetch(first.keys);
  const second = validateDestination(view, stream('10.0.0.20:80'));
  if (second?.kind !== 'need') return t.fail();
  t.is(second.keys[0]?.kind, 'service');
  view.fetch(second.keys);
  t.is(validateDestination(view, stream('10.0.0.20:80')), null);
});

// spec: dataplane.md §7.4
test('7.4 the target is always the dialled address; an IP authority keeps its port', (t) => {
  t.like(resolve([], stream('10.0.0.9:9000')), {
    kind: 'upstream',
    destination: { ip: '10.0.0.9', port: 9000 },
    connect: { ip: '10.0.0.9', port: 9000, loopback: false },
    proxyDestination: null,
    candidates: [web],
  });
});

// spec: dataplane.md §7.4
test("7.4 a hostname is translated by this workload's own map, else by the service, else it fails", (t) => {
  t.like(resolve([web], stream('web.demo:80')), { destination: { port: 8080 } });
  const own = { ...pod, services: { 'demo/web.demo': { 80: 9090 } } };
  t.like(resolve([web], stream('web.demo:80', { workload: own })), { destination: { port: 9090 } });
  const elsewhere = { ...pod, services: {} };
  t.like(resolve([web], stream('web.demo:80', { workload: elsewhere })), {
    destination: { port: 8080 },
  });
  t.like(resolve([web], stream('web.demo:81')), { kind: 'deny', code: 'ROUTE_NO_UPSTREAM' });
  t.like(resolve([], stream('gone.demo:80')), { kind: 'deny', code: 'ROUTE_NO_UPSTREAM' });
  t.is(resolveUpstream(new FetchedView([]), stream('web.demo:80'), [], settings).kind, 'need');
});

// spec: dataplane.md §7.4
test("7.4 a resolved port of the proxy's own is refused", (t) => {
  t.like(resolve([], stream('10.0.0.9:15008')), { kind: 'deny' });
  const tunnel = { ...pod, applicationTunnel: { protocol: 'NONE', port: 15_006 } } as const;
  t.like(resolve([], stream('10.0.0.9:80', { workload: tunnel })), { kind: 'deny' });
});

// spec: dataplane.md §7.4, spec: dataplane.md §7.5
test('7.4 and 7.5 a NONE tunnel changes the port, a PROXY tunnel goes over loopback with a header', (t) => {
  const none = { ...pod, applicationTunnel: { protocol: 'NONE', port: 15_088 } } as const;
  t.like(resolve([], stream('10.0.0.9:80', { workload: none })), {
    destination: { ip: '10.0.0.9', port: 15_088 },
    connect: { ip: '10.0.0.9', port: 15_088, loopback: false },
    proxyDestination: null,
  });
  const proxy = { ...pod, applicationTunnel: { protocol: 'PROXY', port: 15_088 } } as const;
  t.like(resolve([], stream('10.0.0.20:80', { workload: proxy })), {
    destination: { ip: '10.0.0.9', port: 15_088 },
    connect: { ip: '127.0.0.1', port: 15_088, loopback: true },
    proxyDestination: { ip: '10.0.0.20', port: 80 },
  });
  const v6 = stream('[fd00::9]:80', { workload: proxy, localIp: 'fd00::9' });
  t.like(resolve([], v6), { connect: { ip: '::1' } });
  t.like(
    resolveUpstream(viewOf([pod]), stream('10.0.0.9:80', { workload: proxy }), [], {
      ...settings,
      localhostAppTunnel: false,
    }),
    { connect: { ip: '10.0.0.9', loopback: false } },
  );
});

// spec: dataplane.md §7.4
test('7.4 the PROXY destination of a hostname is a VIP: own network IPv4, then IPv6, then another network', (t) => {
  const proxy = { ...pod, applicationTunnel: { protocol: 'PROXY', port: 0 } } as const;
  const to = (...addresses: Service['addresses'][number][]) => {
    const result = resolve([{ ...web, addresses }], stream('web.demo:80', { workload: proxy }));
    return result.kind === 'upstream' ? result.proxyDestination?.ip : result.kind;
  };
  const far = vip('10.96.0.9', 'n2');
  t.is(to(far, vip('fd00::96'), vip('10.96.0.1')), '10.96.0.1');
  t.is(to(far, vip('fd00::96')), 'fd00::96');
  t.is(to(far), '10.96.0.9');
  t.is(to(vip('10.96.0.0', '', 24)), 'deny');
});

// spec: dataplane.md §7.6
test('7.6 telemetry: the forwarded host, else the first service with the port, else unknown', (t) => {
  const api = service({ hostname: 'api.demo', ports: { 80: 7070 } });
  const candidates = [api, web];
  t.is(telemetryService(candidates, pod, 'web.demo', 7070)?.hostname, 'web.demo');
  t.is(telemetryService(candidates, pod, 'other', 7070)?.hostname, 'api.demo');
  t.is(telemetryService(candidates, pod, null, 8080)?.hostname, 'web.demo');
  const mapped = { ...pod, services: { 'demo/api.demo': { 80: 9999 } } };
  t.is(telemetryService(candidates, mapped, null, 9999)?.hostname, 'api.demo');
  t.is(telemetryService(candidates, pod, null, 1), null);
});

// spec: dataplane.md §8.1
test("8.1 captured plaintext to one of the proxy's own ports is refused", (t) => {
  t.like(checkPlaintextDestination({ ip: '10.0.0.9', port: 15_008 }, settings.illegalPorts), {
    code: 'ROUTE_ILLEGAL',
  });
  t.is(checkPlaintextDestination({ ip: '10.0.0.9', port: 80 }, settings.illegalPorts), null);
});
