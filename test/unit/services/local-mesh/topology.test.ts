import { isIPv4, isIPv6 } from 'node:net';
import test from 'ava';
import {
  MAX_NODES,
  MAX_PODS_PER_NODE,
  planMesh,
  podAddresses,
  podLinkName,
  podNetns,
} from '../../../../services/local-mesh/topology.ts';

test('a mesh is planned from its name and size alone', (t) => {
  const plan = planMesh('weft', 2);
  t.is(plan.control.netns, 'weft-ctl');
  t.deepEqual(plan.control.controlPlane, { ipv4: '10.200.0.2', ipv6: 'fd00:200::2' });
  t.deepEqual(plan.control.ca, { ipv4: '10.200.0.3', ipv6: 'fd00:200::3' });
  t.deepEqual(plan.nodes[1], {
    name: 'node-2',
    index: 2,
    netns: 'weft-node-2',
    link: { ipv4: '10.200.0.12', ipv6: 'fd00:200::c' },
    gateway: { ipv4: '10.128.32.1', ipv6: 'fe80::1' },
    podRange: { ipv4: '10.128.32.0/20', ipv6: 'fd00:201:2::/64' },
  });
});

test('no address is given out twice in the largest mesh, and all are valid', (t) => {
  const { nodes, control } = planMesh('weft', MAX_NODES);
  const pairs = [
    control.ca,
    control.controlPlane,
    ...nodes.flatMap((node) => [
      node.link,
      ...[0, 1, 253, 254, 255, MAX_PODS_PER_NODE - 1].map((slot) => podAddresses(node, slot)),
    ]),
  ];
  const all = [
    ...pairs.flatMap(({ ipv4, ipv6 }) => [ipv4, ipv6]),
    ...nodes.map((n) => n.gateway.ipv4),
  ];
  t.is(new Set(all).size, all.length);
  t.true(pairs.every(({ ipv4, ipv6 }) => isIPv4(ipv4) && isIPv6(ipv6)));
});

test('every pod address lies in the range of its node', (t) => {
  const number = (ip: string): number =>
    ip.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
  for (const node of planMesh('weft', MAX_NODES).nodes) {
    const first = number(node.podRange.ipv4.replace('/20', ''));
    for (const slot of [0, 255, MAX_PODS_PER_NODE - 1]) {
      const address = number(podAddresses(node, slot).ipv4);
      t.true(address > first + 1 && address < first + 4_095, `${node.name} ${slot}`);
    }
  }
});

test('namespaces of pods are named so that people find them, and differ', (t) => {
  const taken = new Set<string>();
  const name = (namespace: string, pod: string): string => {
    const netns = podNetns('weft', namespace, pod, (candidate) => taken.has(candidate));
    taken.add(netns);
    return netns;
  };
  t.is(name('a-b', 'c'), 'weft-a-b-c');
  t.regex(name('a', 'b-c'), /^weft-a-b-c-[0-9a-f]{10}$/);
  const long = [name('n', 'x'.repeat(253)), name('n', `${'x'.repeat(252)}y`)];
  t.not(long[0], long[1]);
  t.true(long.every((netns) => netns.length <= 128));
});

test('names of links fit the kernel', (t) => {
  t.regex(podLinkName('3f2c'), /^pod[0-9a-f]{10}$/);
  t.not(podLinkName('a'), podLinkName('b'));
});
