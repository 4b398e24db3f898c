/** Takes parts of Weft, or a whole node, away from a running cluster. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { isCode } from '../../lib/kubernetes/status.ts';
import { captureWhile } from '../support/capture.ts';
import { until } from '../support/until.ts';
import { APP_PORT, singlePod } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { inContainer } from './support/containers.ts';
import { runsRole, withoutRoles } from './support/kill.ts';
import { loadWhile } from './support/load.ts';
import { ask, isEnrolled, isReady, podPerNode, podsOf, rolledOut, urlOf } from './support/pods.ts';
import type { ClusterNode } from './support/node.ts';
import type { ClusterPod } from './support/pods.ts';
import { captureLink, reachedByTunnels } from './mesh.ts';
import { SYSTEM } from './support/weft.ts';

const NODE_BACK_TIMEOUT_MS = 240_000;
const AGENT = 'weft-node-agent';
const ACCOUNT_TOKEN = '/var/run/secrets/kubernetes.io/serviceaccount/token';

/** Checks that a pod of the mesh waits for agent and proxy of its node, and that other pods start without them. */
export async function startWithoutAgent(
  t: ExecutionContext,
  cluster: TestCluster,
  { inside, outside }: { readonly inside: string; readonly outside: string },
): Promise<void> {
  const [server] = await podPerNode(cluster, inside, 'web');
  const [, node] = cluster.nodes;
  const { place } = present(node, 'the second node');
  const asked = present(present(server, 'a pod').status.podIPs[0], 'an address').ip;
  const [podRange] = place.podRanges;
  const link = {
    netns: cluster.network.hub.path,
    device: 'br0',
    filter: `tcp and host ${asked} and net ${podRange}`,
  };
  const pod = async (namespace: string, name: string): Promise<ClusterPod> =>
    present((await podsOf(cluster, namespace, name))[0], `the pod ${name}`);
  const captured = await captureWhile(link, async () => {
    await withoutRoles(present(node, 'the second node'), ['node-agent', 'node-proxy'], async () => {
      const late = { namespace: inside, name: 'late', asks: urlOf(asked, APP_PORT) };
      await cluster.objects.apply(singlePod({ ...late, node: place.name }));
      for (const namespace of [outside, 'kube-system']) {
        await cluster.objects.apply(singlePod({ namespace, name: 'other', node: place.name }));
      }
      for (const namespace of [outside, 'kube-system']) {
        const ready = async (): Promise<boolean> => isReady(await pod(namespace, 'other'));
        await until(ready, { what: `the pod of ${namespace} is ready` });
      }
      await until(async () => refusedByPlugin(cluster, inside, 'late'), {
        what: 'the plugin refuses the pod of the mesh',
      });
      const { containerStatuses } = (await pod(inside, 'late')).status;
      t.deepEqual(
        containerStatuses?.map(({ started }) => started),
        [false],
      );
    });
    await until(async () => isReady(await pod(inside, 'late')), {
      what: 'the pod of the mesh is ready',
      timeoutMs: NODE_BACK_TIMEOUT_MS,
    });
  });
  t.true(isEnrolled(await pod(inside, 'late')));
  const { metadata } = present(server, 'a pod');
  t.true((await cluster.kubectl('-n', inside, 'logs', 'late')).includes(metadata.name));
  t.true(captured.packets.length > 0);
  t.deepEqual(
    captured.packets.filter((line) => !/\.15008[ :]/.test(line)),
    [],
  );
  await cluster.kubectl('-n', inside, 'delete', 'pod', 'late');
  for (const namespace of [outside, 'kube-system']) {
    await cluster.kubectl('-n', namespace, 'delete', 'pod', 'other');
  }
}

/** Puts an agent that cannot start in the place of the one of a node, which is deleted by force, while `body` runs. */
async function withoutAgentPod(
  cluster: TestCluster,
  node: ClusterNode,
  body: () => Promise<void>,
): Promise<void> {
  const { name } = node.place;
  const agentOf = async (): Promise<ClusterPod | undefined> =>
    (await podsOf(cluster, SYSTEM, AGENT, 'app.kubernetes.io/name')).find(
      ({ spec }) => spec.nodeName === name,
    );
  const agent = present(await agentOf(), 'the agent of the node');
  const container = { pod: agent.metadata.name, name: 'node-agent' };
  const token = await inContainer(cluster, container, 'cat', ACCOUNT_TOKEN);
  const { image } = present(agent.spec.containers[0], 'its container');
  const replace = (wanted: string, updateStrategy: unknown): Promise<unknown> => {
    const containers = [{ name: container.name, image: wanted }];
    const spec = { updateStrategy, template: { spec: { containers } } };
    const patch = ['daemonset', AGENT, '-p', JSON.stringify({ spec })];
    return cluster.kubectl('-n', SYSTEM, 'patch', ...patch);
  };
  await replace('weft.invalid/none:1', { type: 'OnDelete', rollingUpdate: null });
  try {
    const force = ['--force', '--grace-period=0'];
    await cluster.kubectl('-n', SYSTEM, 'delete', 'pod', container.pod, ...force);
    const client = cluster.objects.client({ token: token.trim() });
    const refused = async (): Promise<boolean> => {
      const error: unknown = await client.get('/version').catch((failure: unknown) => failure);
      return isCode(error, 'KUBERNETES_REFUSED');
    };
    await until(refused, { what: "the agent's token has ended" });
    await until(async () => !(await runsRole(node, 'node-agent')), { what: 'its process ended' });
    const waits = async (): Promise<boolean> => {
      const next = await agentOf();
      const [status] = next?.status.containerStatuses ?? [];
      return next?.metadata.name !== container.pod && status?.state.waiting !== undefined;
    };
    await until(waits, { what: 'the next agent waits for its image' });
    await body();
  } finally {
    const rollingUpdate = { maxSurge: 0, maxUnavailable: 1 };
    await replace(image, { type: 'RollingUpdate', rollingUpdate });
    await rolledOut(cluster, SYSTEM, `daemonset/${AGENT}`);
  }
}

/** Checks that pods outside the mesh start when the agent's pod is gone with its token, and that a pod of the mesh waits. */
export async function startWithoutAgentPod(
  t: ExecutionContext,
  cluster: TestCluster,
  { inside, outside }: { readonly inside: string; readonly outside: string },
): Promise<void> {
  const node = present(cluster.nodes[1], 'the second node');
  const pod = async (namespace: string): Promise<ClusterPod> =>
    present((await podsOf(cluster, namespace, 'orphan'))[0], `the pod of ${namespace}`);
  await withoutAgentPod(cluster, node, async () => {
    for (const namespace of [inside, outside]) {
      const orphan = { namespace, name: 'orphan', node: node.place.name };
      await cluster.objects.apply(singlePod(orphan));
    }
    await until(async () => isReady(await pod(outside)), { what: 'the pod outside is ready' });
    await until(async () => refusedByPlugin(cluster, inside, 'orphan'), {
      what: 'the plugin refuses the pod of the mesh',
    });
    t.false(isReady(await pod(inside)));
  });
  await until(async () => isReady(await pod(inside)), {
    what: 'the pod of the mesh is ready',
    timeoutMs: NODE_BACK_TIMEOUT_MS,
  });
  t.true(isEnrolled(await pod(inside)));
  t.false(isEnrolled(await pod(outside)));
  for (const namespace of [inside, outside]) {
    await cluster.kubectl('-n', namespace, 'delete', 'pod', 'orphan');
  }
}

async function refusedByPlugin(
  cluster: TestCluster,
  namespace: string,
  name: string,
): Promise<boolean> {
  const selector = `involvedObject.name=${name},reason=FailedCreatePodSandBox`;
  const output = ['-o', 'jsonpath={.items[*].message}'];
  const events = ['-n', namespace, 'get', 'events', '--field-selector', selector];
  const said = await cluster.kubectl(...events, ...output);
  return said.includes('weft-cni');
}

/** Checks that the pods of a node that was down return into the mesh, and that the pods of the other node talk all the time. */
export async function restartNode(
  t: ExecutionContext,
  cluster: TestCluster,
  { inside, outside }: { readonly inside: string; readonly outside: string },
): Promise<void> {
  const node = present(cluster.nodes[1], 'the second node');
  const [client] = await podPerNode(cluster, inside, 'client');
  const [server] = await podPerNode(cluster, inside, 'web');
  const from = { namespace: inside, pod: present(client, 'a pod') };
  const { ip } = present(present(server, 'a pod').status.podIPs[0], 'an address');
  const places = [
    { namespace: inside, names: ['web', 'client'], label: 'app' },
    { namespace: outside, names: ['web'], label: 'app' },
    { namespace: 'kube-system', names: ['kube-dns'], label: 'k8s-app' },
  ];
  const before = new Map<string, string>();
  const containers = async (): Promise<Map<string, ClusterPod>> => {
    const found = new Map<string, ClusterPod>();
    for (const { namespace, names, label } of places) {
      for (const name of names) {
        for (const pod of await podsOf(cluster, namespace, name, label)) {
          if (pod.spec.nodeName === node.place.name) found.set(pod.metadata.name, pod);
        }
      }
    }
    return found;
  };
  const idOf = ({ status }: ClusterPod): string => status.containerStatuses?.[0]?.containerID ?? '';
  for (const [name, pod] of await containers()) before.set(name, idOf(pod));
  let seconds = 0;
  const load = await loadWhile(cluster, from, urlOf(ip, APP_PORT), async () => {
    const start = performance.now();
    await node.restart();
    await until(
      async () => {
        await node.check();
        const now = await containers();
        const back = [...now].every(
          ([name, pod]) => isReady(pod) && idOf(pod) !== before.get(name),
        );
        return now.size === before.size && back;
      },
      { what: 'the pods of the node are back', timeoutMs: NODE_BACK_TIMEOUT_MS },
    );
    seconds = Math.round((performance.now() - start) / 1_000);
    const enrolled = async (): Promise<boolean> => {
      const pods = [...(await containers()).values()];
      return pods.filter(isEnrolled).length >= 2;
    };
    await until(enrolled, { what: 'the pods of the mesh are enrolled' });
  });
  t.log(`the pods of the node were ready ${seconds} s after its end`);
  t.log(
    `meanwhile on the other node: ${load.fresh} new connections, ${load.connections} kept ones`,
  );
  t.true(load.fresh > 0 && load.kept > 0);
  t.deepEqual(load.failures, []);
  for (const kind of ['daemonset', 'deployment']) {
    const ours = ['-l', 'app.kubernetes.io/part-of=weft', '--timeout=180s'];
    await cluster.kubectl('-n', SYSTEM, 'rollout', 'status', kind, ...ours);
  }
  await reachedByTunnels(cluster, inside);
  await captureLink(t, cluster, { inside, outside });
  const [, back] = await podPerNode(cluster, inside, 'client');
  const answer = await ask(
    cluster,
    { namespace: inside, pod: present(back, 'a pod') },
    `http://web.${inside}/`,
  );
  t.truthy(answer.pod);
}
