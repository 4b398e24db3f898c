/** Moves the nodes of an Istio installation from ztunnel to Weft and back. */
import type { ExecutionContext } from 'ava';
import { present } from '../../lib/errors/assert.ts';
import { until } from '../support/until.ts';
import type { TestCluster } from './support/cluster.ts';
import { ISTIO_NAMESPACE, ZTUNNEL_LABEL } from './support/istio.ts';
import { loadWhile } from './support/load.ts';
import type { LoadResult } from './support/load.ts';
import { ask, isReady, podPerNode, podsOf } from './support/pods.ts';
import type { ClusterPod } from './support/pods.ts';

/** The label of a node that runs Weft's proxy. */
export const WEFT_LABEL = 'weft';
const NAME_LABEL = 'app.kubernetes.io/name';
const MOVE_TIMEOUT_MS = 240_000;
/** Requests of each client after a node has moved. */
const ROUNDS_AFTER = 10;

/** Pods of a workload on a node, those that end included. */
async function onNode(
  cluster: TestCluster,
  name: string,
  node: string,
): Promise<readonly ClusterPod[]> {
  const pods = await podsOf(cluster, ISTIO_NAMESPACE, name, NAME_LABEL);
  return pods.filter(({ spec }) => spec.nodeName === node);
}

async function serves(cluster: TestCluster, name: string, node: string): Promise<void> {
  await until(async () => (await onNode(cluster, name, node)).some(isReady), {
    what: `${name} is ready on ${node}`,
    timeoutMs: MOVE_TIMEOUT_MS,
  });
}

/** Waits until every pod of a workload on a node was told to end. Its connections may go on. */
async function leaves(cluster: TestCluster, name: string, node: string): Promise<void> {
  const ending = ({ metadata }: ClusterPod): boolean => metadata.deletionTimestamp !== undefined;
  await until(async () => (await onNode(cluster, name, node)).every(ending), {
    what: `${name} leaves ${node}`,
    timeoutMs: MOVE_TIMEOUT_MS,
  });
}

/** Starts Weft's proxy on a node beside what is there. */
export async function addWeft(cluster: TestCluster, node: string): Promise<void> {
  await cluster.kubectl('label', 'node', node, `${WEFT_LABEL}=proxy`);
  await serves(cluster, 'weft-node-proxy', node);
}

/** Gives a node to Weft: its proxy serves before ztunnel is told to end. */
export async function toWeft(cluster: TestCluster, node: string): Promise<void> {
  await addWeft(cluster, node);
  await cluster.kubectl('label', 'node', node, `${ZTUNNEL_LABEL}=off`);
  await leaves(cluster, 'ztunnel', node);
}

/** Gives a node back to ztunnel, in the same way. */
export async function toZtunnel(cluster: TestCluster, node: string): Promise<void> {
  await cluster.kubectl('label', 'node', node, `${ZTUNNEL_LABEL}-`);
  await serves(cluster, 'ztunnel', node);
  await cluster.kubectl('label', 'node', node, `${WEFT_LABEL}-`);
  await leaves(cluster, 'weft-node-proxy', node);
}

/**
 * Moves one node after another while a client on each puts load on a service of the mesh. No connection may fail: neither a new one
 * nor the one that each client keeps.
 */
export async function moveUnderLoad(
  t: ExecutionContext,
  cluster: TestCluster,
  namespace: string,
  move: (node: string) => Promise<void>,
): Promise<void> {
  const times: string[] = [];
  const note = (what: string): void => void times.push(`${new Date().toISOString()} ${what}`);
  const pods = await podPerNode(cluster, namespace, 'client');
  const steps = async (): Promise<void> => {
    for (const { name } of cluster.network.nodes) {
      note(`${name} moves`);
      await move(name);
      note(`${name} has moved`);
      // The load goes on for a while with the proxy that is left.
      for (let round = 0; round < ROUNDS_AFTER; round += 1) {
        for (const pod of pods) {
          await ask(cluster, { namespace, pod }, `http://web.${namespace}/`);
        }
      }
    }
  };
  const loads: LoadResult[] = [];
  const loaded = pods.reduce<() => Promise<void>>(
    (body, pod) => async () => {
      loads.push(await loadWhile(cluster, { namespace, pod }, `http://web.${namespace}/`, body));
    },
    steps,
  );
  await loaded();
  const fresh = loads.reduce((sum, load) => sum + load.fresh, 0);
  const kept = loads.map((load) => load.kept);
  const failures = loads.flatMap((load) => load.failures);
  t.log(`${fresh} new connections, ${kept.join(' and ')} answers of the kept ones`);
  t.log(`${failures.length} failures`);
  if (failures.length > 0) t.log(...times, ...failures);
  t.true(fresh > 0 && kept.every((count) => count > 0));
  t.deepEqual(failures, []);
}

/** Waits until the access log of a node's proxy of Weft tells of a connection between pods of the mesh. */
export async function carries(cluster: TestCluster, node: string): Promise<void> {
  const [pod] = (await onNode(cluster, 'weft-node-proxy', node)).filter(isReady);
  const { name } = present(pod, `a proxy on ${node}`).metadata;
  await until(
    async () =>
      (await cluster.kubectl('-n', ISTIO_NAMESPACE, 'logs', name, '--tail=200')).includes(
        '"scope":"access"',
      ),
    { what: `an access line of ${name}` },
  );
}
