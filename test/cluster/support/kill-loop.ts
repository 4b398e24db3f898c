/** Kills the containers of Weft's roles, one after another, for some time. */
import { setTimeout as wait } from 'node:timers/promises';
import { present } from '../../../lib/errors/assert.ts';
import { until } from '../../support/until.ts';
import type { TestCluster } from './cluster.ts';
import { killRole } from './kill.ts';
import type { ClusterNode } from './node.ts';
import type { Killed } from './outages.ts';
import { isReady, podsOf } from './pods.ts';
import type { ClusterPod } from './pods.ts';
import { SYSTEM } from './weft.ts';

const PAUSE_MS = 1_000;
const READY_TIMEOUT_MS = 180_000;

/** The roles that are killed, wherever they run. */
export const ROLES = [
  'node-proxy',
  'node-agent',
  'cert-fetcher',
  'xds-ingester',
  'policy-evaluator',
  'redis',
  'control-plane',
  'ca',
] as const;

type Role = (typeof ROLES)[number];

/** Kills of each role, and the proxies among them in the order of their return. */
export interface Kills {
  readonly counts: Readonly<Record<string, number>>;
  readonly proxies: readonly Killed[];
}

/**
 * Kills one container a second, in turns, until `endMs` (of performance.now), and waits until every proxy is ready again. A container
 * is killed again only after it was ready: on a slow machine kills would outrun the starts, and nothing would ever serve.
 */
export async function killLoop(cluster: TestCluster, endMs: number): Promise<Kills> {
  const counts: Record<string, number> = {};
  const proxies: Killed[] = [];
  const recovering = new Set<Promise<void>>();
  const killed = new Set<string>();
  const kill = async (role: Role, node: ClusterNode): Promise<boolean> => {
    const containers = await containersOf(cluster, node, role);
    if (containers.some(({ id, podReady }) => !podReady || killed.has(id))) return false;
    const from = Date.now();
    if (!(await killRole(node, role))) return false;
    const dead = Date.now();
    counts[role] = (counts[role] ?? 0) + 1;
    for (const { id } of containers) killed.add(id);
    if (role === 'node-proxy') {
      const recovery = proxyReturns(cluster, node, killed).then((restartMs) => {
        proxies.push({ node: node.place.name, from, dead, ready: Date.now(), restartMs });
      });
      // Awaited at the end; a rejection meanwhile is no unhandled one.
      recovery.catch(() => {});
      recovering.add(recovery);
    }
    return true;
  };
  while (performance.now() < endMs) {
    let kills = 0;
    for (const role of ROLES) {
      for (const node of cluster.nodes) {
        if (performance.now() >= endMs || !(await kill(role, node))) continue;
        kills += 1;
        await wait(PAUSE_MS);
      }
    }
    if (kills === 0) await wait(PAUSE_MS);
  }
  await Promise.all(recovering);
  return { counts, proxies };
}

/** A container of a role. */
interface RoleContainer {
  readonly id: string;
  readonly podReady: boolean;
  readonly status: ContainerStatus;
}

type ContainerStatus = NonNullable<ClusterPod['status']['containerStatuses']>[number];

/** The containers of a role on a node. */
async function containersOf(
  cluster: TestCluster,
  { place }: ClusterNode,
  role: Role,
): Promise<readonly RoleContainer[]> {
  const pods = await podsOf(cluster, SYSTEM, `weft-${role}`, 'app.kubernetes.io/name');
  return pods
    .filter(({ spec }) => spec.nodeName === place.name)
    .flatMap((pod) =>
      (pod.status.containerStatuses ?? []).map((status) => ({
        id: status.containerID,
        podReady: isReady(pod),
        status,
      })),
    );
}

/** Resolves when a proxy that was not killed is ready, with the time from the end of the one before to its start. */
async function proxyReturns(
  cluster: TestCluster,
  node: ClusterNode,
  killed: ReadonlySet<string>,
): Promise<number> {
  const { status } = await until(
    async () => {
      const containers = await containersOf(cluster, node, 'node-proxy');
      return containers.find(({ id, podReady }) => podReady && !killed.has(id));
    },
    { what: `the proxy of ${node.place.name} is back`, timeoutMs: READY_TIMEOUT_MS },
  ).catch(async (error: unknown) => {
    const where = ['-n', SYSTEM, '--field-selector', `spec.nodeName=${node.place.name}`];
    const pods = await cluster.kubectl('get', 'pods', ...where, '-o', 'wide');
    const names = await podsOf(cluster, SYSTEM, 'weft-node-proxy', 'app.kubernetes.io/name');
    const proxy = names.find(({ spec }) => spec.nodeName === node.place.name)?.metadata.name ?? '';
    const log = await cluster.kubectl('-n', SYSTEM, 'logs', proxy, '--tail=60');
    throw new Error(`${pods}\n${log}`, { cause: error });
  });
  const { finishedAt } = present(status.lastState.terminated, 'the end before');
  const { startedAt } = present(status.state.running, 'the start');
  return Date.parse(startedAt) - Date.parse(finishedAt);
}
