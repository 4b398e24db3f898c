/** Waits until a mesh carries traffic, and says what is missing when it does not. */
import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { canaryRoute, flyCanary } from './canary.ts';
import { askHboneWorkloads, askPods, askStatus, enrolledPods } from './mesh-client.ts';
import type { MeshPaths } from './mesh-paths.ts';

const POLL_MS = 100;

/** What is still missing, told whenever it changes. */
export type WaitListener = (missing: string) => void;

/**
 * Resolves when every actor is ready, every pod meant for the mesh is enrolled and known so to
 * every proxy, and a canary connection went through. Throws ACTOR_DEADLINE with what was missing last.
 */
export async function waitUntilUp(
  paths: MeshPaths,
  options: {
    readonly pods: number;
    readonly timeoutMs: number;
    readonly clock: Clock;
    readonly onMissing: WaitListener;
  },
): Promise<void> {
  const { clock } = options;
  const end = clock.monotonic() + options.timeoutMs;
  let last = '';
  for (;;) {
    const missing = await whatIsMissing(paths, options.pods);
    if (missing === null) return;
    if (missing !== last) options.onMissing(missing);
    last = missing;
    if (clock.monotonic() > end) {
      throw new MeshError(
        'ACTOR_DEADLINE',
        `the mesh is not up after ${options.timeoutMs / 1_000} s: ${missing}; see ${paths.logsDir}`,
      );
    }
    await wait(POLL_MS);
  }
}

/** Null when the mesh is up. */
async function whatIsMissing(paths: MeshPaths, expectedPods: number): Promise<string | null> {
  try {
    const status = await askStatus(paths);
    if (!status.ready) return `waiting for ${status.waiting.join(', ')}`;
    const pods = await askPods(paths);
    if (pods.length < expectedPods) return `${pods.length} of ${expectedPods} pods exist`;
    const starting = pods.filter((pod) => pod.phase === 'Pending').length;
    const enrolled = await enrolledPods(
      paths,
      status.nodes.map((node) => node.name),
    );
    const meant = pods.filter((pod) => pod.ambient);
    const absent = meant.filter((pod) => !enrolled.has(pod.uid)).length;
    if (absent > 0) return `${meant.length - absent} of ${meant.length} pods enrolled`;
    if (starting > 0) return `${starting} pods still start`;
    for (const node of status.nodes) {
      // Until a proxy knows that a pod is enrolled, what it sends there goes in plaintext.
      const known = await askHboneWorkloads(paths, node.name);
      const late = meant.filter((pod) => !known.has(`${pod.namespace}/${pod.name}`)).length;
      if (late > 0) return `${node.name} does not know yet that ${late} pods are enrolled`;
    }
    const route = canaryRoute(pods, enrolled);
    if (route !== null) await flyCanary(paths, route);
    return null;
  } catch (error) {
    return errorText(error);
  }
}
