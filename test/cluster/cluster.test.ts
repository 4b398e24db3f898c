/** Tests Weft on a real Kubernetes cluster of two nodes: containerd, kubelet, kube-proxy and a chain of CNI plugins on each. */
import { readdir } from 'node:fs/promises';
import test from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { until } from '../support/until.ts';
import { APP_PORT, UNREADY_FILE, app } from './support/app.ts';
import type { TestCluster } from './support/cluster.ts';
import { evidence } from './support/evidence.ts';
import { Owner } from './support/owner.ts';
import { ask, podPerNode, podsOf, rolledOut, urlOf } from './support/pods.ts';
import { prepareCluster } from './support/prepare.ts';
import { marks, traces } from './support/snapshot.ts';
import { enrol, installWeft } from './support/weft.ts';
import { restartNode, startWithoutAgent, startWithoutAgentPod } from './failures.ts';
import { missingRights, readCommands } from './cli.ts';
import { compact, sharedRedis } from './forms.ts';
import { captureLink, enrolRunning, resources } from './mesh.ts';
import { restartUnderLoad, upgradeUnderLoad } from './roll.ts';
import { confined, ownNodeOnly, restricted, withinRequests } from './security.ts';
import { uninstallUnderLoad } from './uninstall.ts';

const owner = new Owner();
let running: TestCluster | null = null;
const cluster = (): TestCluster => present(running, 'the cluster runs');
let tracesBefore: readonly (readonly string[])[] = [];

const preparation = await prepareCluster();
if ('missing' in preparation) process.stderr.write(`\nSKIPPED cluster: ${preparation.missing}\n`);
const { helm, archive } = 'missing' in preparation ? { helm: '', archive: '' } : preparation;
const clusterTest = 'missing' in preparation ? test.serial.skip : test.serial;

if (!('missing' in preparation)) {
  test.before(async (t) => {
    t.timeout(300_000);
    const before = performance.now();
    running = await preparation.start(owner);
    t.log(`the cluster was complete after ${Math.round((performance.now() - before) / 1_000)} s`);
  });
  test.after.always(async (t) => {
    t.timeout(120_000);
    await owner.end();
  });
}

test.afterEach.always(async (t) => {
  if (t.passed || running === null) return;
  t.timeout(120_000);
  t.log((await evidence(running)).join('\n'));
});

clusterTest('a Deployment runs on both nodes and is reached from each', async (t) => {
  t.timeout(300_000);
  const namespace = await cluster().objects.namespace('spread');
  await cluster().objects.apply(...app(namespace, 'web', 4));
  await rolledOut(cluster(), namespace, 'deployment/web');
  const pods = await podPerNode(cluster(), namespace, 'web');
  const nodeOf = new Map(
    (await podsOf(cluster(), namespace, 'web')).map((pod) => [
      pod.metadata.name,
      pod.spec.nodeName,
    ]),
  );
  for (const pod of pods) {
    const seen = new Set<string | undefined>();
    await until(
      async () => {
        const answer = await ask(cluster(), { namespace, pod }, `http://web.${namespace}/`);
        seen.add(nodeOf.get(answer.pod));
        return seen.size === 2;
      },
      { what: 'answers of the service from both nodes' },
    );
    for (const other of pods) {
      t.is(other.status.podIPs.length, 2);
      for (const { ip } of other.status.podIPs) {
        const answer = await ask(cluster(), { namespace, pod }, urlOf(ip, APP_PORT));
        t.is(answer.pod, other.metadata.name);
      }
    }
  }
});

clusterTest('a pod that is not ready leaves its service', async (t) => {
  const namespace = await cluster().objects.namespace('ready');
  await cluster().objects.apply(...app(namespace, 'web', 1));
  await rolledOut(cluster(), namespace, 'deployment/web');
  const { name } = present((await podsOf(cluster(), namespace, 'web'))[0], 'a pod').metadata;
  const becomes = async (expected: string): Promise<void> => {
    const list = ['get', 'endpointslices', '-l', 'kubernetes.io/service-name=web'];
    const output = ['-o', 'jsonpath={.items[*].endpoints[*].conditions.ready}'];
    const condition = (): Promise<string> => cluster().kubectl('-n', namespace, ...list, ...output);
    await until(async () => (await condition()) === expected, { what: `endpoints: ${expected}` });
  };
  // The controller of slices follows that of Deployments.
  await becomes('true true');
  for (const [command, expected] of [
    [['touch', UNREADY_FILE], 'false false'],
    [['rm', UNREADY_FILE], 'true true'],
  ] as const) {
    await cluster().kubectl('-n', namespace, 'exec', name, '--', ...command);
    await becomes(expected);
  }
  t.pass();
});

clusterTest('helm install makes every workload ready', async (t) => {
  t.timeout(300_000);
  for (const name of ['plain', 'early']) {
    await cluster().kubectl('create', 'namespace', name);
    await cluster().objects.apply(...app(name, 'web', 2));
  }
  await rolledOut(cluster(), 'plain', 'deployment/web');
  await rolledOut(cluster(), 'early', 'deployment/web');
  tracesBefore = await Promise.all(cluster().nodes.map(traces));
  await installWeft(cluster(), helm);
  t.pass();
});

clusterTest('pods of a labelled namespace roll out into the mesh', async (t) => {
  t.timeout(300_000);
  await cluster().kubectl('create', 'namespace', 'mesh');
  await enrol(cluster(), 'mesh');
  await cluster().objects.apply(...app('mesh', 'web', 2), ...app('mesh', 'client', 2));
  await rolledOut(cluster(), 'mesh', 'deployment/web');
  await rolledOut(cluster(), 'mesh', 'deployment/client');
  await captureLink(t, cluster(), { inside: 'mesh', outside: 'plain' });
});

clusterTest('policies and entries take effect', (t) =>
  resources(t, cluster(), { inside: 'mesh', outside: 'plain' }),
);

clusterTest('the kernel and the API server hold each pod to its rights', async (t) => {
  await confined(t, cluster());
  await restricted(t, cluster(), ['weft-ca', 'weft-control-plane']);
  await ownNodeOnly(t, cluster(), 'mesh');
});

clusterTest('every read command works with the rights of a user', async (t) => {
  t.timeout(300_000);
  await readCommands(t, cluster(), 'mesh');
});

clusterTest('a command names the right that the user lacks', async (t) => {
  t.timeout(120_000);
  await missingRights(t, cluster());
});

clusterTest('pods that ran before the installation are enrolled without a restart', (t) =>
  enrolRunning(t, cluster(), 'early'),
);

clusterTest('a pod of the mesh does not start while agent and proxy are down', async (t) => {
  t.timeout(300_000);
  await startWithoutAgent(t, cluster(), { inside: 'mesh', outside: 'plain' });
});

clusterTest('pods outside the mesh start when the pod of the agent is gone for good', async (t) => {
  t.timeout(400_000);
  await startWithoutAgentPod(t, cluster(), { inside: 'mesh', outside: 'plain' });
});

clusterTest('workloads are restarted under load, and no connection fails', async (t) => {
  t.timeout(600_000);
  await restartUnderLoad(t, cluster(), 'mesh');
  await withinRequests(t, cluster());
});

clusterTest(
  'Weft is upgraded to a second image and back under load, and no connection fails',
  async (t) => {
    t.timeout(600_000);
    await upgradeUnderLoad(t, cluster(), { namespace: 'mesh', helm, archive });
  },
);

clusterTest('the pods of a node that was down return into the mesh', async (t) => {
  t.timeout(600_000);
  await restartNode(t, cluster(), { inside: 'mesh', outside: 'plain' });
});

clusterTest('helm uninstall leaves nothing, and new connections go on', async (t) => {
  t.timeout(300_000);
  await uninstallUnderLoad(t, cluster(), { helm, namespaces: ['mesh'] });
  t.deepEqual(await marks(cluster(), 'early'), []);
  t.deepEqual(await Promise.all(cluster().nodes.map(traces)), tracesBefore);
});

for (const [name, form] of Object.entries({
  'all roles of a node in one pod': compact,
  'one Redis for all nodes': sharedRedis,
})) {
  clusterTest(
    `${name}: pods are enrolled, policies take effect, and nothing is left`,
    async (t) => {
      t.timeout(400_000);
      await form(t, { cluster: cluster(), helm, inside: 'mesh', outside: 'plain' });
      t.deepEqual(await Promise.all(cluster().nodes.map(traces)), tracesBefore);
      t.deepEqual(await marks(cluster(), 'mesh'), []);
    },
  );
}

clusterTest('the end of the cluster leaves nothing', async (t) => {
  t.timeout(120_000);
  const { network, nodes, server } = cluster();
  const names = [network.hub, ...network.nodes.map((node) => node.netns)].map(({ name }) => name);
  await owner.end();
  running = null;
  const left = await readdir('/run/netns');
  const groups = await readdir('/sys/fs/cgroup/memory');
  t.deepEqual(
    names.filter((name) => left.includes(name) || groups.includes(name)),
    [],
  );
  for (const folder of [server.directory, ...nodes.map((node) => node.folder)]) {
    await t.throwsAsync(readdir(folder), { code: 'ENOENT' });
  }
});
