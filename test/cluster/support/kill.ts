/** Kills the processes of Weft's roles on a node. */
import { setTimeout as wait } from 'node:timers/promises';
import { until } from '../../support/until.ts';
import type { ClusterNode } from './node.ts';

const AGAIN_MS = 100;

/** Sends SIGKILL to every process of a role on a node; returns whether there was one. */
export function killRole(node: ClusterNode, role: string): Promise<boolean> {
  return found(node, role, 'pkill', '-KILL');
}

/** Returns whether a process of a role runs on a node. */
export function runsRole(node: ClusterNode, role: string): Promise<boolean> {
  return found(node, role, 'pgrep');
}

async function found(
  node: ClusterNode,
  role: string,
  ...words: readonly string[]
): Promise<boolean> {
  const pattern = role === 'redis' ? '^redis-server' : `main\\.js run ${role}$`;
  try {
    await node.exec(...words, '-f', pattern);
    return true;
  } catch (error) {
    // Their status when no process matches.
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
    const killed = await Promise.all(roles.map((role) => killRole(node, role)));
    return killed.some((one) => one);
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
