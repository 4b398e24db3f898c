import { podWith } from './comparison.ts';
import type { Comparison } from './comparison.ts';
import type { Fields } from './canonical.ts';

const OWNER_UID = 'b6f7c1d2-0000-4000-8000-000000000001';

const owner = (kind: string, name: string, apiVersion = 'apps/v1'): Fields => ({
  generateName: `${name}-`,
  ownerReferences: [{ apiVersion, kind, name, uid: OWNER_UID, controller: true }],
});

/** Pods: docs/spec/istiod-ambient.md §1.1. */
export const podComparisons: readonly Comparison[] = [
  {
    title: 'a pod: names, addresses, account, node, health',
    rows: [
      '1.1.a',
      '1.1.1',
      '1.1.2',
      '1.1.3',
      '1.1.5',
      '1.1.6',
      '1.1.7',
      '1.1.8',
      '1.1.11',
      '1.1.12',
      '1.1.21',
    ],
    objects: (ns) => [
      podWith(ns, 'ready', {}, { account: 'web' }),
      podWith(ns, 'unready', {}, { ready: false }),
      podWith(ns, 'elsewhere', {}, { node: 'node-9' }),
      podWith(ns, 'two-families', {
        status: { podIP: '10.246.0.1', podIPs: [{ ip: '10.246.0.1' }, { ip: 'fd00:246::1' }] },
      }),
      podWith(ns, 'failed', { status: { phase: 'Failed' } }),
      podWith(ns, 'succeeded', { status: { phase: 'Succeeded' } }),
      podWith(ns, 'pending', { status: { phase: 'Pending' } }),
      podWith(ns, 'without-address', { status: { podIP: '', podIPs: [] } }),
      podWith(ns, 'one-address', { status: { podIPs: [] } }),
      podWith(ns, 'ends', { metadata: { finalizers: ['weft.test/stays'] } }),
    ],
    later: (cluster, stored) =>
      cluster.delete(...stored.filter(({ metadata }) => metadata.name === 'ends')),
  },
  {
    title: 'the locality of a pod is that of its node',
    rows: ['1.1.9'],
    objects: (ns) => [
      `
apiVersion: v1
kind: Node
metadata:
  name: ${ns}
  labels: { topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z1, topology.istio.io/subzone: s1 }
`,
      podWith(ns, 'near', {}, { node: ns }),
      podWith(ns, 'unknown', {}, { node: 'no-such-node' }),
    ],
  },
  {
    title: 'a pod in the network of its host',
    rows: ['1.1.10'],
    objects: (ns) => [
      podWith(ns, 'host', { spec: { hostNetwork: true, containers: [{ name: 'a', image: 'a' }] } }),
    ],
  },
  {
    title: 'the name of the workload, by label and by owner',
    rows: ['1.1.13', '1.1.b'],
    objects: (ns) => [
      podWith(ns, 'labelled', {
        metadata: { labels: { 'service.istio.io/workload-name': 'named' } },
      }),
      podWith(ns, 'web-5d8f7c9b44-abcde', {
        metadata: {
          ...owner('ReplicaSet', 'web-5d8f7c9b44'),
          labels: { 'pod-template-hash': '5d8f7c9b44' },
        },
      }),
      podWith(ns, 'plain-abcde', { metadata: owner('ReplicaSet', 'plain') }),
      podWith(ns, 'roll-77-abcde', {
        metadata: {
          ...owner('ReplicaSet', 'roll-77'),
          labels: { 'rollouts-pod-template-hash': '77' },
        },
      }),
      podWith(ns, 'cron-28512345-abcde', { metadata: owner('Job', 'cron-28512345', 'batch/v1') }),
      podWith(ns, 'job-1-abcde', { metadata: owner('Job', 'job-1', 'batch/v1') }),
      podWith(ns, 'cron-285-abcde', { metadata: owner('Job', 'cron-285', 'batch/v1') }),
      podWith(ns, 'db-0', { metadata: owner('StatefulSet', 'db') }),
      podWith(ns, 'rc-abcde', {
        metadata: {
          ...owner('ReplicationController', 'rc-1', 'v1'),
          labels: { deploymentconfig: 'dc' },
        },
      }),
      podWith(ns, 'own-abcde', { metadata: owner('Machine', 'own', 'example.com/v1') }),
      podWith(ns, 'another-hash-abcde', {
        metadata: { ...owner('ReplicaSet', 'web-1'), labels: { 'pod-template-hash': '2' } },
      }),
      podWith(ns, 'not-controlled-abcde', {
        metadata: {
          generateName: 'not-controlled-',
          ownerReferences: [
            { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'x', uid: OWNER_UID },
          ],
        },
      }),
      podWith(ns, 'without-generate', {
        metadata: { ownerReferences: owner('ReplicaSet', 'x')['ownerReferences'] },
      }),
    ],
  },
  {
    title: 'canonical name and revision, by each label',
    rows: ['1.1.14', '1.1.15'],
    objects: (ns) => [
      podWith(ns, 'app', {}, { labels: { app: 'a', version: 'v1' } }),
      podWith(
        ns,
        'recommended',
        {},
        {
          labels: {
            app: 'a',
            'app.kubernetes.io/name': 'b',
            version: 'v1',
            'app.kubernetes.io/version': 'v2',
          },
        },
      ),
      podWith(
        ns,
        'canonical',
        {},
        {
          labels: {
            'app.kubernetes.io/name': 'b',
            'service.istio.io/canonical-name': 'c',
            'app.kubernetes.io/version': 'v2',
            'service.istio.io/canonical-revision': 'v3',
          },
        },
      ),
    ],
  },
  {
    title: 'how a pod is reached',
    rows: ['1.1.16'],
    objects: (ns) => [
      podWith(ns, 'plain', { metadata: { annotations: {} } }),
      podWith(ns, 'native', {
        metadata: { annotations: {}, labels: { 'networking.istio.io/tunnel': 'http' } },
      }),
      podWith(ns, 'both', { metadata: { labels: { 'networking.istio.io/tunnel': 'http' } } }),
      podWith(ns, 'sidecar', {
        metadata: { annotations: {}, labels: { 'security.istio.io/tlsMode': 'istio' } },
      }),
      podWith(ns, 'enrolled-sidecar', {
        metadata: { labels: { 'security.istio.io/tlsMode': 'istio' } },
      }),
    ],
  },
];
