/** Tests docs/decisions/waypoint-enforcement.md. */
import test from 'ava';
import type { Service, Workload } from '../../../../lib/state/model.ts';
import { decideOutbound } from '../../../../lib/state/routing.ts';
import { judgePassage } from '../../../../lib/state/waypoint-guard.ts';
import type { Arrived } from '../../../../lib/state/waypoint-guard.ts';
import { FetchedView, service, viewOf, vip, workload } from '../../../support/mesh-kit.ts';

const named = (hostname: string) => ({
  destination: { kind: 'hostname' as const, namespace: 'demo', hostname },
  hboneMtlsPort: 15_008,
});
const identity = (account: string): string => `spiffe://cluster.local/ns/demo/sa/${account}`;
const waypointService = service({
  hostname: 'wp.demo',
  addresses: [vip('10.96.0.50')],
  subjectAltNames: [identity('wp-alt')],
});
const waypointPod = workload({
  uid: 'c//Pod/demo/wp',
  serviceAccount: 'wp',
  addresses: ['10.0.1.50'],
  services: { 'demo/wp.demo': { 15_008: 15_008 } },
});
const web = service({ hostname: 'web.demo', ports: { 80: 8080 } });
const pod = workload({
  uid: 'c//Pod/demo/web',
  addresses: ['10.0.0.9'],
  services: { 'demo/web.demo': {} },
});
const guarded: Workload = { ...pod, waypoint: named('wp.demo') };
const everything: readonly (Workload | Service)[] = [waypointService, waypointPod, web];

const judge = (parts: Partial<Arrived>, mesh = everything) =>
  judgePassage(viewOf([pod, ...mesh]), {
    workload: pod,
    services: [web],
    port: 8080,
    forwardedHost: null,
    identity: identity('client'),
    ...parts,
  });

test('nothing is asked of the mesh where no waypoint is named', (t) => {
  const view = new FetchedView([]);
  const arrived = { workload: pod, services: [web], port: 80, forwardedHost: null, identity: null };
  t.is(judgePassage(view, arrived).kind, 'direct');
  t.is(judgePassage(view, { ...arrived, workload: guarded }).kind, 'need');
});

test("a workload's waypoint is demanded of what addressed the workload, in plaintext too", (t) => {
  t.is(judge({ workload: guarded }).kind, 'bypassed');
  t.is(judge({ workload: guarded, identity: null }).kind, 'bypassed');
  t.is(judge({ workload: guarded, identity: identity('wp') }).kind, 'waypoint');
  t.is(judge({ workload: guarded, identity: identity('wp-alt') }).kind, 'waypoint');
});

test("a service's waypoint is demanded of what addressed the service, and only of that", (t) => {
  const service = { ...web, waypoint: named('wp.demo') };
  const parts = { services: [service] };
  t.is(judge({ ...parts, forwardedHost: 'web.demo' }).kind, 'bypassed');
  t.is(judge(parts).kind, 'direct');
  t.is(judge({ ...parts, forwardedHost: 'other.demo' }).kind, 'direct');
  t.is(judge({ ...parts, identity: identity('wp') }).kind, 'waypoint');
});

test('what the way out sends straight to a pod is let in there, though a service of the pod has a waypoint', (t) => {
  const guardedWeb = { ...web, addresses: [vip('10.96.0.1')], waypoint: named('wp.demo') };
  const client = workload({ uid: 'c//Pod/demo/client', addresses: ['10.0.0.2'] });
  const reachable = { ...waypointService, ports: { 15_008: 15_008 } };
  const way = (ip: string, port: number) =>
    decideOutbound(viewOf([client, pod, reachable, waypointPod, guardedWeb]), {
      source: client,
      sourceIp: '10.0.0.2',
      target: { ip, port },
      illegalPorts: new Set(),
      network: '',
      random: () => 0,
    });
  t.like(way('10.96.0.1', 80), { kind: 'hbone', via: 'waypoint' });
  // A direct connection, as by a scraper or to a member of a headless service, names no service.
  const direct = way('10.0.0.9', 8080);
  t.like(direct, { kind: 'hbone', via: 'direct', service: null });
  t.is(judge({ services: [guardedWeb], forwardedHost: null }).kind, 'direct');
  t.is(judge({ services: [guardedWeb], forwardedHost: 'web.demo' }).kind, 'bypassed');
});

test('a service without a waypoint is a way of its own, if it leads to the port', (t) => {
  const parts = { workload: guarded, forwardedHost: 'web.demo' };
  t.is(judge(parts).kind, 'direct');
  t.is(judge({ ...parts, port: 9090 }).kind, 'bypassed');
  const mapped = { ...guarded, services: { 'demo/web.demo': { 80: 9090 } } };
  t.is(judge({ ...parts, workload: mapped, port: 9090 }).kind, 'direct');
});

test('each of several weighted waypoints will do, those of no weight not', (t) => {
  const other = workload({
    uid: 'c//Pod/demo/wp2',
    serviceAccount: 'wp2',
    addresses: ['10.0.1.51'],
  });
  const byIp = {
    destination: { kind: 'address' as const, network: '', ip: '10.0.1.51' },
    hboneMtlsPort: 15_008,
  };
  const weighted = (weight: number) => ({
    services: [
      {
        ...web,
        weightedWaypoints: [
          { destination: named('wp.demo'), weight: 1 },
          { destination: byIp, weight },
        ],
      },
    ],
    forwardedHost: 'web.demo',
  });
  const mesh = [...everything, other];
  t.is(judge({ ...weighted(1), identity: identity('wp2') }, mesh).kind, 'waypoint');
  t.is(judge({ ...weighted(1), identity: identity('wp') }, mesh).kind, 'waypoint');
  t.is(judge({ ...weighted(0), identity: identity('wp2') }, mesh).kind, 'bypassed');
});

test('a waypoint that nobody knows lets nobody through, and is named', (t) => {
  const passage = judge({ workload: { ...pod, waypoint: named('gone.demo') } });
  t.is(passage.kind, 'bypassed');
  t.regex(passage.kind === 'bypassed' ? passage.reason : '', /demo\/gone\.demo:15008/);
});

test("a waypoint's own pod is not sent through itself", (t) => {
  const itself = { ...waypointPod, waypoint: named('wp.demo') };
  t.is(judge({ workload: itself, services: [waypointService] }).kind, 'direct');
});
