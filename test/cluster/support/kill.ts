/** Kills the processes of Weft's roles on a node. */
import { setTimeout as wait } from 'node:timers/promises';
import { until } from '../../support/until.ts';
import type { ClusterNode } from './node.ts';

const AGAIN_MS = 100;

/** Sends SIGKILL to every process of a role on a node; returns whether there was one. */
export async function killRole(node: ClusterNode, role: string): Promise<boolean> {
  const pattern = role === 'redis' ? '^redis-server' : `main\\.ts run ${role}$`;
  try {
    await node.exec('pkill', '-KILL', '-f', pattern);
    return true;
  } catch (error) {
    // The status of pkill when no process matches.
    if ((error as { readonly code?: unknown }).code === 1) return false;
    throw error;
  }
}

/** Keeps roles of a node down while `body` runs: kills them, and again whenever kubelet starts them. */
export async function withoutRoles(
  node: ClusterNode,
  roles: readonly string[],
  body: () => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  const killAll = async (): Promise<boolean> => {
    const found = await Promise.all(roles.map((role) => killRole(node, role)));
    return found.some((one) => one);
  };
  const ran = await Promise.all(roles.map((role) => killRole(node, role)));
  if (ran.includes(false)) throw new Error(`not all of ${roles.join(', ')} ran`);
  await until(async () => !(await killAll()), { what: `${roles.join(', ')} are gone` });
  const again = async (): Promise<void> => {
    while (!over.signal.aborted) {
      await killAll();
      await wait(AGAIN_MS);
    }
  };
  const killing = again();
  try {
    await body();
  } finally {
    over.abort();
    await killing;
  }
}
