/** The end of the node agent's process by SIGTERM: it cleans its node up only when it leaves for good. */
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { spawnAgent } from '../support/node-agent-kit.ts';
import { until } from '../support/until.ts';
import type { Cluster } from './support/cluster.ts';
import { ADDRESS, agentNode, agentOf, sandbox } from './support/node-agent.ts';
import type { AgentNode } from './support/node-agent.ts';
import { pod } from './support/objects.ts';
import { OWN_LIST } from './support/plugin-add.ts';
import { usedRights } from './support/rbac.ts';
import { kubernetesSuite } from './support/suite.ts';

const PRIMARY = '10-calico.conflist';
const ROLE = { 'weft.io/role': 'mesh' };
const DAEMON_SET = 'weft-node-agent';

/** Registers the node, and the DaemonSet that selects it. */
async function register(cluster: Cluster, { node, system }: AgentNode): Promise<void> {
  await cluster.apply({ apiVersion: 'v1', kind: 'Node', metadata: { name: node, labels: ROLE } });
  const labels = { app: DAEMON_SET };
  await cluster.admin.create(`/apis/apps/v1/namespaces/${system}/daemonsets`, {
    apiVersion: 'apps/v1',
    kind: 'DaemonSet',
    metadata: { name: DAEMON_SET },
    spec: {
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: { nodeSelector: ROLE, containers: [{ name: 'agent', image: 'agent' }] },
      },
    },
  });
}

function setRole(cluster: Cluster, { node }: AgentNode, role: string | null): Promise<unknown> {
  return cluster.admin.request({
    method: 'PATCH',
    path: `/api/v1/nodes/${node}`,
    contentType: 'application/merge-patch+json',
    body: { metadata: { labels: { 'weft.io/role': role } } },
  });
}

/** The traces of the agent on the node. */
async function traces({ cni, host }: AgentNode): Promise<Record<string, unknown>> {
  const rules = await host.exec('/usr/sbin/nft', 'list', 'ruleset');
  return {
    lists: await readdir(cni.netDir),
    programs: await readdir(cni.binDir),
    kubeconfig: (await readdir(cni.runDir)).includes('weft-cni-kubeconfig'),
    probes: rules.includes('weft-host'),
  };
}

const CLEAN = { lists: [PRIMARY], programs: [], kubeconfig: false, probes: false };

/** Starts an agent, changes the cluster, ends the agent by SIGTERM, and returns what it left. */
async function afterSigterm(
  t: ExecutionContext,
  cluster: Cluster,
  change: (node: AgentNode) => Promise<unknown>,
  cni = true,
): Promise<{ readonly node: AgentNode; readonly left: Record<string, unknown> }> {
  const node = await agentNode(t, cluster, { cni });
  await register(cluster, node);
  const agent = spawnAgent(t, node.site);
  await until(
    async () => {
      const { lists, probes, kubeconfig } = await traces(node);
      const installed = (lists as string[]).includes(OWN_LIST) && kubeconfig === true;
      return installed === cni && probes === true;
    },
    { what: 'the agent has installed everything' },
  );
  await change(node);
  const ended = once(agent, 'exit');
  agent.kill('SIGTERM');
  t.deepEqual(await ended, [0, null]);
  const { refused } = await usedRights(cluster, node.account);
  t.deepEqual(refused, []);
  return { node, left: await traces(node) };
}

await kubernetesSuite('node-agent-departure', (test) => {
  test('after a restart, an update or a reboot everything is still there', async (t, cluster) => {
    const { node, left } = await afterSigterm(t, cluster, async () => undefined);
    t.deepEqual(left['lists'], [OWN_LIST, PRIMARY]);
    t.true((left['programs'] as string[]).includes('weft-cni'));
    t.like(left, { kubeconfig: true, probes: true });
    t.true((await readdir(join(node.cni.binDir, 'weft-cni.d'))).includes('node'));
  });

  test('an agent whose node is given back while it departs leaves the rest to the next one', async (t, cluster) => {
    const node = await agentNode(t, cluster, { cni: true });
    await register(cluster, node);
    const agent = await agentOf(t, node);
    const namespace = await cluster.namespace('back', { 'istio.io/dataplane-mode': 'ambient' });
    const [stored] = await cluster.apply(pod(namespace, 'web', { ip: ADDRESS, node: node.node }));
    const { uid } = present(stored, 'the pod is stored').metadata;
    await sandbox(t, node, uid);
    await until(() => agent.state(uid) === 'pending', { what: 'the pod has rules' });
    await until(async () => (await traces(node))['probes'] === true, { what: 'the node has some' });
    await setRole(cluster, node, null);
    const drained = agent.drain();
    // Its carried connections have three seconds then.
    await until(() => agent.state(uid) === 'leaving', { what: 'the pod leaves' });
    await setRole(cluster, node, 'mesh');
    await drained;
    t.is(agent.state(uid), undefined);
    t.like(await traces(node), { lists: [PRIMARY], probes: true });
  });

  for (const cni of [true, false]) {
    const plugin = cni ? 'and a plugin' : 'without a plugin';
    test(`a node that no longer matches the DaemonSet is cleaned up, ${plugin}`, async (t, cluster) => {
      const unmatch = (node: AgentNode): Promise<unknown> => setRole(cluster, node, null);
      const { left } = await afterSigterm(t, cluster, unmatch, cni);
      t.deepEqual(left, CLEAN);
    });
  }

  test('a DaemonSet that is being deleted is the end', async (t, cluster) => {
    const { left } = await afterSigterm(t, cluster, ({ system }) =>
      cluster.admin.request({
        method: 'DELETE',
        path: `/apis/apps/v1/namespaces/${system}/daemonsets/${DAEMON_SET}`,
        query: { propagationPolicy: 'Foreground' },
      }),
    );
    t.deepEqual(left, CLEAN);
  });
});
