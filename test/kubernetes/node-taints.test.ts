/** The leader removes the taint of unready nodes, and no other taint. */
import { until } from '../support/until.ts';
import type { Cluster } from './support/cluster.ts';
import { startCa, startControlPlane } from './support/control-plane.ts';
import { NOT_READY, nodePod, taintedNode, taintsOf } from './support/nodes.ts';
import { kubernetesSuite } from './support/suite.ts';

const AGENT = 'weft-node-agent';
const PROXY = 'weft-node-proxy';

async function untainted(cluster: Cluster, node: string): Promise<void> {
  await until(async () => !(await taintsOf(cluster, node)).includes(NOT_READY), {
    what: `${node} loses the taint`,
  });
}

await kubernetesSuite('node-taints', (test) => {
  test('the taint goes when agent and proxy of the node are ready, and other taints stay', async (t, cluster) => {
    const namespace = await cluster.namespace('taints');
    const elsewhere = await cluster.namespace('elsewhere');
    const plane = await startControlPlane(t, cluster, { rootNamespace: namespace });
    await plane.ready();
    const agentOnly = await taintedNode(cluster, namespace, [AGENT]);
    const foreign = await taintedNode(cluster, elsewhere);
    const half = await taintedNode(cluster, namespace, [AGENT]);
    await cluster.apply(nodePod(namespace, PROXY, half, { ready: false }));
    // The leader has seen the others when it has done what came after them.
    const whole = await taintedNode(cluster, namespace);
    await untainted(cluster, whole);
    t.true((await taintsOf(cluster, whole)).includes('dedicated'));
    for (const node of [agentOnly, foreign, half]) {
      t.is((await taintsOf(cluster, node)).filter((key) => key === NOT_READY).length, 2, node);
    }
    await cluster.apply(nodePod(namespace, PROXY, half));
    await untainted(cluster, half);
    const compact = await taintedNode(cluster, namespace, []);
    await cluster.apply(nodePod(namespace, AGENT, compact, { component: 'node', ready: false }));
    await cluster.apply(nodePod(elsewhere, AGENT, compact, { component: 'node' }));
    const next = await taintedNode(cluster, namespace);
    await untainted(cluster, next);
    t.true((await taintsOf(cluster, compact)).includes(NOT_READY));
    await cluster.apply(nodePod(namespace, AGENT, compact, { component: 'node' }));
    await untainted(cluster, compact);
    // A node that registers anew while its pods are ready.
    await cluster.admin.request({
      method: 'PATCH',
      path: `/api/v1/nodes/${whole}`,
      contentType: 'application/merge-patch+json',
      body: { spec: { taints: [{ key: NOT_READY, effect: 'NoSchedule' }] } },
    });
    await untainted(cluster, whole);
    t.deepEqual(plane.hosted.failures, []);
  });

  test('no taint of another writer is lost or comes back, with several replicas', async (t, cluster) => {
    const namespace = await cluster.namespace('taints');
    const ca = await startCa(t, namespace);
    const replicas = await Promise.all(
      [1, 2].map(() => startControlPlane(t, cluster, { rootNamespace: namespace, ca })),
    );
    await Promise.all(replicas.map((replica) => replica.ready()));
    const nodes = await Promise.all(
      Array.from({ length: 5 }, () => taintedNode(cluster, namespace, [AGENT])),
    );
    const churn = async (node: string): Promise<void> => {
      for (let round = 0; round < 20; round += 1) {
        if (round === 10) await cluster.apply(nodePod(namespace, PROXY, node));
        await changeTaint(cluster, node, round);
      }
    };
    await Promise.all(nodes.map(churn));
    await Promise.all(nodes.map((node) => untainted(cluster, node)));
    for (const node of nodes) {
      const own = (await taintsOf(cluster, node)).filter((key) => !key.startsWith('node.'));
      t.deepEqual(own, ['dedicated', 'round-19']);
    }
    const told = (message: string): readonly unknown[] =>
      replicas.flatMap(({ hosted }) => hosted.lines.filter((line) => line.message === message));
    await until(() => told('node.taint-removed').length >= nodes.length, { what: 'every line' });
    t.is(told('node.taint-removed').length, nodes.length);
    t.deepEqual(told('kubernetes.write-dropped'), []);
  });
});

/** Replaces a taint of its own as another controller does: it reads the node and writes it back, until nobody came between. */
async function changeTaint(cluster: Cluster, node: string, round: number): Promise<void> {
  const path = `/api/v1/nodes/${node}`;
  await until(
    async () => {
      const object = (await cluster.admin.get(path)) as {
        readonly spec: { readonly taints?: readonly { readonly key: string }[] };
      };
      const others = (object.spec.taints ?? []).filter(({ key }) => !key.startsWith('round-'));
      const taints = [...others, { key: `round-${round}`, effect: 'PreferNoSchedule' }];
      try {
        await cluster.admin.replace(path, { ...object, spec: { ...object.spec, taints } });
        return true;
      } catch (error) {
        if ((error as { code?: string }).code === 'KUBERNETES_CONFLICT') return false;
        throw error;
      }
    },
    { what: 'the change' },
  );
}
