/** Kills the containers of Weft's roles, one after another, for some time. */
import { setTimeout as wait } from 'node:timers/promises';
import { until } from '../../support/until.ts';
import type { TestCluster } from './cluster.ts';
import { killRole } from './kill.ts';
import type { LoadFailure } from './load.ts';
import type { ClusterNode } from './node.ts';
import { isReady, podsOf } from './pods.ts';
import { SYSTEM } from './weft.ts';

const PAUSE_MS = 1_000;
/** An end that is seen elsewhere a moment before or after. */
const SLACK_MS = 1_000;
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

/** A time without a proxy on a node, in milliseconds since the epoch. */
export interface Outage {
  readonly node: string;
  readonly from: number;
  readonly to: number;
}

/** Kills of each role, and the times without a proxy. */
export interface Kills {
  readonly counts: Readonly<Record<string, number>>;
  readonly outages: readonly Outage[];
}

/** Kills one container a second, in turns, until `endMs` (of performance.now), and waits until every role is ready again. */
export async function killLoop(cluster: TestCluster, endMs: number): Promise<Kills> {
  const counts: Record<string, number> = {};
  const outages: Outage[] = [];
  const recovering = new Map<string, Promise<void>>();
  while (performance.now() < endMs) {
    for (const role of ROLES) {
      for (const node of cluster.nodes) {
        const { name } = node.place;
        if (performance.now() >= endMs || (role === 'node-proxy' && recovering.has(name))) continue;
        const before = role === 'node-proxy' ? await proxyOf(cluster, node) : null;
        const from = Date.now();
        if (!(await killRole(node, role))) continue;
        counts[role] = (counts[role] ?? 0) + 1;
        if (before !== null) {
          const recovery = proxyReturns(cluster, node, before).then(() => {
            outages.push({ node: name, from, to: Date.now() });
            recovering.delete(name);
          });
          // Awaited at the end; a rejection meanwhile is no unhandled one.
          recovery.catch(() => {});
          recovering.set(name, recovery);
        }
        await wait(PAUSE_MS);
      }
    }
  }
  await Promise.all(recovering.values());
  return { counts, outages };
}

/** Whether a failure of a connection between two nodes is one that a killed proxy carried. */
export function explained(
  failure: LoadFailure,
  nodes: readonly string[],
  outages: readonly Outage[],
): boolean {
  const at = Date.parse(failure.at);
  const since = failure.what === 'kept connection' ? at : Date.parse(failure.since);
  return outages.some(
    ({ node, from, to }) => nodes.includes(node) && since <= to + SLACK_MS && at >= from - SLACK_MS,
  );
}

/** The container of a node's proxy; null while it is not ready. */
async function proxyOf(cluster: TestCluster, { place }: ClusterNode): Promise<string | null> {
  const pods = await podsOf(cluster, SYSTEM, 'weft-node-proxy', 'app.kubernetes.io/name');
  const pod = pods.find(({ spec }) => spec.nodeName === place.name);
  if (pod === undefined || !isReady(pod)) return null;
  return pod.status.containerStatuses?.[0]?.containerID ?? null;
}

async function proxyReturns(
  cluster: TestCluster,
  node: ClusterNode,
  before: string,
): Promise<void> {
  await until(
    async () => {
      const now = await proxyOf(cluster, node);
      return now !== null && now !== before;
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
}
