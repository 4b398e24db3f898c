/** Takes parts of Weft, or a whole node, away from a running cluster. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { captureWhile } from '../support/capture.ts';
import { until } from '../support/until.ts';
import { APP_PORT, singlePod } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { withoutRoles } from './support/kill.ts';
import { loadWhile } from './support/load.ts';
import { ask, isEnrolled, isReady, podPerNode, podsOf, urlOf } from './support/pods.ts';
import type { ClusterPod } from './support/pods.ts';
import { captureLink } from './mesh.ts';
import { SYSTEM } from './support/weft.ts';

const NODE_BACK_TIMEOUT_MS = 240_000;

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
  await captureLink(t, cluster, { inside, outside });
  const [, back] = await podPerNode(cluster, inside, 'client');
  const answer = await ask(
    cluster,
    { namespace: inside, pod: present(back, 'a pod') },
    `http://web.${inside}/`,
  );
  t.truthy(answer.pod);
}
