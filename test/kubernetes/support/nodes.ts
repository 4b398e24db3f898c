/** Nodes, and the pods of Weft's DaemonSets on them. */
import { randomBytes } from 'node:crypto';
import type { Cluster, TestObject } from './cluster.ts';

/** The taint that the leader removes. */
export const NOT_READY = 'cni.istio.io/not-ready';

/** Registers a node with the taint, whose DaemonSets in `namespace` are ready unless told otherwise. Returns its name. */
export async function taintedNode(
  cluster: Cluster,
  namespace: string,
  daemonSets: readonly string[] = ['weft-node-agent', 'weft-node-proxy'],
): Promise<string> {
  const name = `node-${randomBytes(4).toString('hex')}`;
  const taint = (effect: string) => ({ key: NOT_READY, effect });
  await cluster.admin.create('/api/v1/nodes', {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    spec: {
      taints: [
        taint('NoSchedule'),
        { key: 'dedicated', value: 'gpu', effect: 'NoSchedule' },
        taint('NoExecute'),
      ],
    },
  });
  for (const daemonSet of daemonSets) await cluster.apply(nodePod(namespace, daemonSet, name));
  return name;
}

/** A pod of a DaemonSet on a node; `component` is that of its labels. */
export function nodePod(
  namespace: string,
  daemonSet: string,
  node: string,
  { ready = true, component }: { readonly ready?: boolean; readonly component?: string } = {},
): TestObject {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: `${daemonSet}-${node}`,
      namespace,
      ...(component === undefined ? {} : { labels: { 'app.kubernetes.io/component': component } }),
      ownerReferences: [
        {
          apiVersion: 'apps/v1',
          kind: 'DaemonSet',
          name: daemonSet,
          uid: daemonSet,
          controller: true,
        },
      ],
    } as TestObject['metadata'],
    spec: { nodeName: node, containers: [{ name: 'main', image: 'main' }] },
    status: { conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }] },
  };
}

/** Returns the keys of a node's taints. */
export async function taintsOf(cluster: Cluster, node: string): Promise<readonly string[]> {
  const { spec } = (await cluster.admin.get(`/api/v1/nodes/${node}`)) as {
    readonly spec: { readonly taints?: readonly { readonly key: string }[] };
  };
  return (spec.taints ?? []).map(({ key }) => key);
}
