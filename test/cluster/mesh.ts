/** Checks Weft on a running cluster. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { captureWhile } from '../support/capture.ts';
import type { Captured } from '../support/capture.ts';
import { until } from '../support/until.ts';
import { APP_PORT } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { ask, isEnrolled, podPerNode, podsOf, urlOf } from './support/pods.ts';
import type { ClusterPod } from './support/pods.ts';
import { enrol } from './support/weft.ts';

/** Requests of a capture. */
const ROUNDS = 5;

/** Captures what crosses the link between the nodes while a pod of one asks a pod of the other. */
async function captureBetween(
  cluster: TestCluster,
  namespace: string,
  pods: readonly ClusterPod[],
): Promise<Captured> {
  const [from, to] = [present(pods[0], 'a pod'), present(pods[1], 'a second pod')];
  const hosts = pods.flatMap(({ status }) => status.podIPs.map(({ ip }) => `host ${ip}`));
  const filter = `tcp and ( ${hosts.join(' or ')} )`;
  const link = { netns: cluster.network.hub.path, device: 'br0', filter };
  return captureWhile(link, async () => {
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const { ip } of to.status.podIPs) {
        const { pod } = await ask(cluster, { namespace, pod: from }, urlOf(ip, APP_PORT));
        if (pod !== to.metadata.name) throw new Error(`${pod} answered for ${to.metadata.name}`);
      }
    }
  });
}

/** Checks that only TLS to port 15008 crosses the link for pods of the mesh, and plaintext for others. */
export async function captureLink(
  t: ExecutionContext,
  cluster: TestCluster,
  { inside, outside }: { readonly inside: string; readonly outside: string },
): Promise<void> {
  const tunnels = await captureBetween(cluster, inside, await podPerNode(cluster, inside, 'web'));
  t.true(tunnels.packets.length > 0);
  t.deepEqual(
    tunnels.packets.filter((line) => !/\.15008[ :]/.test(line)),
    [],
  );
  t.false(tunnels.bytes.includes('HTTP/1.1'));
  const plain = await captureBetween(cluster, outside, await podPerNode(cluster, outside, 'web'));
  t.true(plain.bytes.includes('HTTP/1.1'));
  t.false(plain.packets.some((line) => /\.15008[ :]/.test(line)));
}

/**
 * Waits until the pods of a namespace reach each other by tunnels. The proxies of other nodes learn from the control plane, a moment
 * after the annotation, that a pod takes tunnels; a node that has lost the control plane looks for it every 15 seconds.
 */
export async function reachedByTunnels(cluster: TestCluster, namespace: string): Promise<void> {
  const pods = await podPerNode(cluster, namespace, 'web');
  const tunnelled = async (): Promise<boolean> =>
    !(await captureBetween(cluster, namespace, pods)).bytes.includes('HTTP/1.1');
  await until(tunnelled, { what: 'the pods are reached by tunnels' });
}

/** Checks that resources take effect, and that a policy's status says so. */
export async function resources(
  t: ExecutionContext,
  cluster: TestCluster,
  { inside, outside }: { readonly inside: string; readonly outside: string },
): Promise<void> {
  const [client] = await podPerNode(cluster, inside, 'client');
  const [stranger] = await podPerNode(cluster, outside, 'web');
  const url = `http://web.${inside}/`;
  const asked = (namespace: string, pod: ClusterPod | undefined): Promise<unknown> =>
    ask(cluster, { namespace, pod: present(pod, 'a pod') }, url);
  const refused = async (): Promise<boolean> => {
    try {
      await asked(outside, stranger);
      return false;
    } catch (error) {
      return /Connection reset by peer/.test(String(error));
    }
  };
  const policy = {
    apiVersion: 'security.istio.io/v1',
    kind: 'AuthorizationPolicy',
    metadata: { name: 'clients', namespace: inside },
    spec: {
      selector: { matchLabels: { app: 'web' } },
      rules: [{ from: [{ source: { principals: [`cluster.local/ns/${inside}/sa/client`] } }] }],
    },
  };
  const authentication = {
    apiVersion: 'security.istio.io/v1',
    kind: 'PeerAuthentication',
    metadata: { name: 'strict', namespace: inside },
    spec: { mtls: { mode: 'STRICT' } },
  };
  for (const object of [policy, authentication]) {
    await asked(outside, stranger);
    await cluster.objects.apply(object);
    await until(refused, { what: `the effect of ${object.kind}` });
    await asked(inside, client);
    if (object === policy) {
      const name = `authorizationpolicy/${policy.metadata.name}`;
      const condition = '--for=condition=ZtunnelAccepted';
      await cluster.kubectl('-n', inside, 'wait', condition, name, '--timeout=60s');
    }
    await cluster.objects.delete(object);
    await until(async () => !(await refused()), { what: `the end of ${object.kind}` });
  }
  await cluster.objects.apply({
    apiVersion: 'networking.istio.io/v1',
    kind: 'ServiceEntry',
    metadata: { name: 'elsewhere', namespace: inside },
    spec: {
      hosts: ['elsewhere.example.com'],
      addresses: ['240.1.1.1'],
      ports: [{ number: 80, name: 'http', protocol: 'HTTP', targetPort: APP_PORT }],
      resolution: 'STATIC',
      location: 'MESH_INTERNAL',
      workloadSelector: { labels: { app: 'web' } },
    },
  });
  const names = new Set(
    (await podsOf(cluster, inside, 'web')).map(({ metadata }) => metadata.name),
  );
  const from = { namespace: inside, pod: present(client, 'a pod') };
  await until(
    async () => names.has((await ask(cluster, from, 'http://elsewhere.example.com/')).pod),
    { what: 'an answer under the name of the ServiceEntry' },
  );
  t.pass();
}

/** Checks that running pods enter the mesh without a restart. */
export async function enrolRunning(
  t: ExecutionContext,
  cluster: TestCluster,
  namespace: string,
): Promise<void> {
  const before = await podsOf(cluster, namespace, 'web');
  await enrol(cluster, namespace);
  const enrolled = async (): Promise<boolean> =>
    (await podsOf(cluster, namespace, 'web')).every(isEnrolled);
  await until(enrolled, { what: 'the running pods are enrolled' });
  await reachedByTunnels(cluster, namespace);
  const pods = await podPerNode(cluster, namespace, 'web');
  const captured = await captureBetween(cluster, namespace, pods);
  t.true(captured.packets.length > 0);
  t.false(captured.bytes.includes('HTTP/1.1'));
  const after = await podsOf(cluster, namespace, 'web');
  const containers = (pods: readonly ClusterPod[]): unknown =>
    pods.map(({ status }) => status.containerStatuses?.map(({ containerID }) => containerID));
  t.deepEqual(containers(after), containers(before));
}
