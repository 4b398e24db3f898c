/** Whether the CNI plugin leaves the node with the agent. */
import test from 'ava';
import { decideDeparture } from '../../../../services/node-agent/kubernetes/departure.ts';

const node = { metadata: { name: 'node-1', labels: { os: 'linux', zone: 'b', cores: '8' } } };

function daemonSet(
  spec: Record<string, unknown>,
  metadata: Record<string, unknown> = {},
): Record<string, unknown> {
  return { metadata, spec: { template: { spec } } };
}

function affinity(...terms: readonly unknown[]): Record<string, unknown> {
  return {
    affinity: {
      nodeAffinity: {
        requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: terms },
      },
    },
  };
}

const one = (key: string, operator: string, ...values: string[]): Record<string, unknown> => ({
  matchExpressions: [{ key, operator, values }],
});

test('it stays while the DaemonSet stays and selects the node', (t) => {
  for (const spec of [
    {},
    { nodeSelector: { os: 'linux' } },
    affinity(one('zone', 'In', 'a', 'b')),
    affinity(one('zone', 'In', 'a'), one('os', 'Exists')),
    affinity(one('gpu', 'DoesNotExist')),
    affinity(one('zone', 'NotIn', 'a')),
    affinity(one('cores', 'Gt', '4')),
    affinity(one('cores', 'Lt', '9')),
    affinity({ matchFields: [{ key: 'metadata.name', operator: 'In', values: ['node-1'] }] }),
  ]) {
    t.false(decideDeparture(daemonSet(spec), node).leaves, JSON.stringify(spec));
  }
});

test('it leaves when the DaemonSet is being deleted or gone, whatever the node', (t) => {
  const deleted = daemonSet({}, { deletionTimestamp: '2026-11-23T00:00:00Z' });
  for (const at of [node, null]) {
    t.true(decideDeparture(deleted, at).leaves);
    t.true(decideDeparture(null, at).leaves);
  }
});

test('it stays on a node that is not registered', (t) => {
  t.false(decideDeparture(daemonSet({ nodeSelector: { os: 'linux' } }), null).leaves);
});

test('it leaves when the node is no longer selected', (t) => {
  for (const spec of [
    { nodeSelector: { os: 'windows' } },
    { nodeSelector: { gpu: 'yes' } },
    affinity(one('zone', 'In', 'a')),
    affinity(one('zone', 'NotIn', 'b')),
    affinity(one('gpu', 'Exists')),
    affinity(one('cores', 'Gt', '8')),
    affinity({}),
    affinity({ matchExpressions: [], matchFields: [] }),
    affinity({ matchFields: [{ key: 'metadata.name', operator: 'In', values: ['node-2'] }] }),
  ]) {
    t.true(decideDeparture(daemonSet(spec), node).leaves, JSON.stringify(spec));
  }
});
