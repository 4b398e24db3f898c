import test from 'ava';
import { ciliumConflicts } from '../../../../services/node-agent/proof/cilium.ts';
import { nodeFindings, podFindings } from '../../../../services/node-agent/proof/findings.ts';
import type { NodeFacts, PodFacts } from '../../../../services/node-agent/proof/findings.ts';
import {
  blockingPolicy,
  readPolicies,
} from '../../../../services/node-agent/proof/network-policies.ts';

const POD: PodFacts = {
  pod: 'demo/web-1',
  state: 'enabled',
  exposure: null,
  reason: null,
  differences: [],
  missingPorts: [],
  canary: 'captured',
};
const NODE: NodeFacts = {
  proxies: 1,
  redisConnected: true,
  noZones: null,
  cni: { problem: null, helper: null, conflict: null, uncalled: [] },
  cluster: { problems: [], skewMs: -900, blocked: [], conflicts: [] },
};

function podCauses(changes: Partial<PodFacts>): readonly string[] {
  return podFindings({ ...POD, ...changes }).map(({ cause, detail }) => `${cause}: ${detail}`);
}

function nodeCauses(changes: Partial<NodeFacts>): readonly string[] {
  return nodeFindings({ ...NODE, ...changes }).map(({ cause, pod }) => `${cause} ${pod}`);
}

test('a pod and a node that are right have no findings', (t) => {
  t.deepEqual(podCauses({}), []);
  t.deepEqual(podCauses({ canary: 'no-route' }), []);
  t.deepEqual(nodeCauses({}), []);
  t.deepEqual(nodeCauses({ cni: null, cluster: null }), []);
});

test('each fault of a pod has its cause', (t) => {
  const lacks = 'IPv4 table nat has no chains';
  t.deepEqual(podCauses({ differences: [lacks] }), [`missing rule: ${lacks}`]);
  const reason =
    'Warning: Extension connmark revision 0 not supported, missing kernel module?; iptables-restore: failed';
  t.deepEqual(podCauses({ differences: [lacks], reason, exposure: 'cut' }), [
    `missing kernel module: ${reason} (cut off)`,
    `missing rule: ${lacks} (cut off)`,
  ]);
  t.deepEqual(podCauses({ reason: 'no proxy', state: 'pending', exposure: 'open' }), [
    'not enrolled: no proxy (open)',
  ]);
  t.deepEqual(podCauses({ differences: null, canary: null }), [
    'not enrolled: its rules cannot be read',
  ]);
  t.deepEqual(podCauses({ missingPorts: [15_008] }), [
    'missing listener: nothing listens at 15008',
  ]);
  t.deepEqual(podCauses({ canary: 'not-captured' }), [
    "not captured: a connection to nobody's address was not captured",
  ]);
});

test('each fault of a node has its cause', (t) => {
  t.deepEqual(nodeCauses({ redisConnected: false, proxies: 0, noZones: 'xt_CT' }), [
    'missing kernel module null',
    'Redis unreachable null',
    'no proxy null',
  ]);
  const cni = { problem: 'p', helper: 'h', conflict: null, uncalled: ['demo/web-1'] };
  t.deepEqual(nodeCauses({ cni }), [
    'stale conflist null',
    'CNI helper without token null',
    'plugin not called demo/web-1',
  ]);
  t.deepEqual(nodeCauses({ cni: { problem: 'p', helper: null, conflict: 'c', uncalled: [] } }), [
    'conflicting CNI option null',
  ]);
  const blocked = [{ pod: 'demo/web-1', policy: 'demo/closed' }];
  const cluster = { problems: ['away'], skewMs: 31_000, blocked, conflicts: ['c'] };
  t.deepEqual(nodeCauses({ cluster }), [
    'conflicting CNI option null',
    'API server unreachable null',
    'clock skew null',
    'NetworkPolicy blocks 15008 demo/web-1',
  ]);
});

test('a NetworkPolicy blocks tunnels when none that selects the pod opens 15008 to anybody', (t) => {
  const pod = { namespace: 'demo', labels: { app: 'web' } };
  const policy = (name: string, spec: unknown, namespace = 'demo') => ({
    metadata: { name, namespace },
    spec,
  });
  const blocking = (...items: unknown[]): string | null =>
    blockingPolicy(readPolicies({ items }), pod);
  const closed = policy('closed', { podSelector: {} });
  const opens = (port: unknown) =>
    policy('open', { podSelector: {}, ingress: [{ ports: [port] }] });
  t.is(blocking(), null);
  t.is(blocking(closed), 'demo/closed');
  t.is(blocking(policy('far', { podSelector: {} }, 'other')), null);
  t.is(blocking(policy('db', { podSelector: { matchLabels: { app: 'db' } } })), null);
  t.is(blocking(policy('out', { podSelector: {}, policyTypes: ['Egress'] })), null);
  t.is(blocking(policy('some', { podSelector: {}, ingress: [{ from: [{}] }] })), null);
  for (const port of [{ port: 8_080 }, { port: 15_008, protocol: 'UDP' }, { port: 'http' }]) {
    t.is(blocking(opens(port)), 'demo/open', JSON.stringify(port));
    t.is(blocking(closed, opens(port)), 'demo/closed');
  }
  for (const port of [{ port: 15_008 }, { protocol: 'TCP' }, { port: 15_000, endPort: 16_000 }]) {
    t.is(blocking(closed, opens(port)), null, JSON.stringify(port));
  }
  t.throws(() => readPolicies({ items: [{ metadata: {} }] }));
});

test('Cilium is named by the options under which a mesh does not work', (t) => {
  const conflicts = (data: Record<string, string>): number => ciliumConflicts({ data }).length;
  t.is(conflicts({}), 0);
  t.deepEqual(ciliumConflicts({}), []);
  const right = { 'cni-exclusive': 'false', 'kube-proxy-replacement': 'false' };
  t.is(conflicts(right), 0);
  t.is(conflicts({ ...right, 'cni-exclusive': 'true' }), 1);
  for (const on of [{ 'bpf-lb-sock': 'true' }, { 'kube-proxy-replacement': 'strict' }]) {
    t.is(conflicts({ ...right, ...on }), 1);
    t.is(conflicts({ ...right, ...on, 'bpf-lb-sock-hostns-only': 'true' }), 0);
  }
  t.is(conflicts({ ...right, 'enable-bpf-masquerade': 'true' }), 1);
  t.throws(() => ciliumConflicts({ data: { a: 1 } }));
});
