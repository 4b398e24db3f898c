/** Replaces the workloads of Weft on a running cluster under load. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { until } from '../support/until.ts';
import type { TestCluster } from './support/cluster.ts';
import { loadWhile } from './support/load.ts';
import type { LoadResult } from './support/load.ts';
import { isReady, podPerNode, podsOf } from './support/pods.ts';
import type { ClusterPod } from './support/pods.ts';
import { SECOND_COMPLETE, SECOND_IMAGE, secondArchive } from './support/second-image.ts';
import { SYSTEM, rollBack, upgradeWeft } from './support/weft.ts';

const REPLACED_TIMEOUT_MS = 180_000;

/** Workloads of the chart in the order in which an operator restarts them. */
const WORKLOADS = [
  'deployment/weft-ca',
  'deployment/weft-control-plane',
  'daemonset/weft-cert-fetcher',
  'daemonset/weft-xds-ingester',
  'daemonset/weft-policy-evaluator',
  'daemonset/weft-node-agent',
  'daemonset/weft-node-proxy',
  'daemonset/weft-redis',
];

/**
 * Replaces the pods of workloads and waits until new ones serve in place of all old ones. An old proxy may go on with its
 * connections; the status of a DaemonSet counts it until it ends.
 */
async function replace(
  cluster: TestCluster,
  workloads: readonly string[],
  how: () => Promise<unknown>,
): Promise<void> {
  const pods = async (): Promise<readonly ClusterPod[]> => {
    const names = workloads.map((workload) => present(workload.split('/')[1], 'a name'));
    const lists = names.map((name) => podsOf(cluster, SYSTEM, name, 'app.kubernetes.io/name'));
    return (await Promise.all(lists)).flat();
  };
  const leaves = ({ metadata }: ClusterPod): boolean => metadata.deletionTimestamp !== undefined;
  const before = await pods();
  const names = new Set(before.map(({ metadata }) => metadata.name));
  const wanted = before.filter((pod) => !leaves(pod)).length;
  await how();
  await until(
    async () => {
      const now = await pods();
      const fresh = now.filter(({ metadata }) => !names.has(metadata.name));
      const old = now.filter(({ metadata }) => names.has(metadata.name));
      return old.every(leaves) && fresh.length === wanted && fresh.every(isReady);
    },
    { what: `new pods of ${workloads.join(', ')}`, timeoutMs: REPLACED_TIMEOUT_MS },
  );
}

/** Loads, and the times of the steps that were taken meanwhile. */
interface Rolled {
  readonly loads: readonly LoadResult[];
  readonly times: readonly string[];
}

/** Takes a step after another while pods ask the server `web` of their namespace. */
async function underLoad(
  cluster: TestCluster,
  from: { readonly namespace: string; readonly pods: readonly ClusterPod[] },
  steps: Readonly<Record<string, () => Promise<unknown>>>,
): Promise<Rolled> {
  const times: string[] = [];
  const loads: LoadResult[] = [];
  const { namespace, pods } = from;
  let body = async (): Promise<void> => {
    for (const [name, step] of Object.entries(steps)) {
      times.push(`${new Date().toISOString()} ${name}`);
      await step();
    }
    times.push(`${new Date().toISOString()} done`);
  };
  for (const pod of pods) {
    const inner = body;
    body = async () => {
      loads.push(await loadWhile(cluster, { namespace, pod }, `http://web.${namespace}/`, inner));
    };
  }
  await body();
  return { loads, times };
}

/** Checks that no connection fails while one workload of Weft after another is restarted. */
export async function restartUnderLoad(
  t: ExecutionContext,
  cluster: TestCluster,
  namespace: string,
): Promise<void> {
  const restart = (workload: string): Promise<void> =>
    replace(cluster, [workload], () =>
      cluster.kubectl('-n', SYSTEM, 'rollout', 'restart', workload),
    );
  const steps = WORKLOADS.map((workload) => [workload, () => restart(workload)] as const);
  const pods = (await podPerNode(cluster, namespace, 'client')).slice(0, 1);
  assertSmooth(t, await underLoad(cluster, { namespace, pods }, Object.fromEntries(steps)));
}

/** Asserts that the loads went on and that none of their connections failed. */
function assertSmooth(t: ExecutionContext, { loads, times }: Rolled): void {
  const failures = loads.flatMap((load) => load.failures);
  if (failures.length > 0) t.log(...times);
  for (const { fresh, kept, connections } of loads) {
    t.log(`${fresh} new connections, ${kept} answers of ${connections} kept ones`);
    t.true(fresh > 0 && kept > 0);
  }
  t.deepEqual(failures, []);
}

/** Checks that no connection fails while Weft is upgraded to its next version and back. The clients of both nodes ask their server. */
export async function upgradeUnderLoad(
  t: ExecutionContext,
  cluster: TestCluster,
  { namespace, helm, archive }: { namespace: string; helm: string; archive: string },
): Promise<void> {
  const second = await secondArchive(archive, cluster.folder);
  for (const node of cluster.nodes) {
    await node.exec('ctr', '-n', 'k8s.io', 'images', 'import', second);
  }
  const carriedBySecond = async (): Promise<boolean> => {
    const pods = await podsOf(cluster, SYSTEM, 'weft-node-proxy', 'app.kubernetes.io/name');
    const names = pods.filter(
      ({ spec, metadata }) =>
        metadata.deletionTimestamp === undefined &&
        spec.containers.some(({ image }) => image === SECOND_IMAGE),
    );
    const logs = names.map(({ metadata }) => cluster.kubectl('-n', SYSTEM, 'logs', metadata.name));
    const carried = (await Promise.all(logs)).map((log) => log.includes(SECOND_COMPLETE));
    return carried.length === cluster.nodes.length && carried.every((one) => one);
  };
  const pods = await podPerNode(cluster, namespace, 'client');
  const rolled = await underLoad(
    cluster,
    { namespace, pods },
    {
      upgrade: () => replace(cluster, WORKLOADS, () => upgradeWeft(cluster, helm, SECOND_IMAGE)),
      'second image': () =>
        until(carriedBySecond, { what: 'connections that proxies of the second image carried' }),
      rollback: () => replace(cluster, WORKLOADS, () => rollBack(cluster, helm)),
    },
  );
  assertSmooth(t, rolled);
}
