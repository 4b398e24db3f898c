/** Waits until a mesh carries traffic, and names what is missing. */
import { setTimeout as wait } from 'node:timers/promises';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { canaryLack, canaryRoute, flyCanary } from './canary.ts';
import { askHboneWorkloads, askPods, askStatus, enrolledPods } from './mesh-client.ts';
import { CONFIGURATION } from './managed-process.ts';
import { logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { MeshStatus } from './supervisor-api.ts';
import { misconfigured } from './log-files.ts';

const POLL_MS = 100;

/** Called with the missing parts whenever they change, and at the end with the parts that could not be proven. */
export type WaitListener = (note: string) => void;

/**
 * Resolves when every actor is ready, every pod of the mesh is enrolled, every proxy knows that, and a canary connection
 * went through; also when the signal aborts. Throws ACTOR_DEADLINE with the last missing part, and CONFIG_INVALID as soon
 * as an actor refuses its configuration.
 */
export async function waitUntilUp(
  paths: MeshPaths,
  options: {
    readonly pods: number;
    readonly timeoutMs: number;
    readonly clock: Clock;
    readonly signal: AbortSignal;
    readonly onNote: WaitListener;
  },
): Promise<void> {
  const { clock } = options;
  const end = clock.monotonic() + options.timeoutMs;
  let last = '';
  while (!options.signal.aborted) {
    const missing = await whatIsMissing(paths, options);
    if (missing === null) return;
    if (missing !== last) options.onNote(missing);
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
async function whatIsMissing(
  paths: MeshPaths,
  options: { readonly pods: number; readonly onNote: WaitListener },
): Promise<string | null> {
  const expectedPods = options.pods;
  try {
    const status = await askStatus(paths);
    const broken = status.actors.find(({ pending }) => pending.includes(CONFIGURATION));
    if (broken !== undefined) {
      throw await misconfigured(broken.name, logFile(paths, broken.name, broken.node));
    }
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
    const asked = nodesWithOwnProxy(status);
    for (const node of asked) {
      // A proxy sends plaintext to a pod until it knows that the pod is enrolled.
      const known = await askHboneWorkloads(paths, node);
      const late = meant.filter((pod) => !known.has(`${pod.namespace}/${pod.name}`)).length;
      if (late > 0) return `${node} does not know yet that ${late} pods are enrolled`;
    }
    const route = canaryRoute(
      pods.filter((pod) => asked.includes(pod.node)),
      enrolled,
    );
    if (route !== null) await flyCanary(paths, route);
    const lack = canaryLack(route, status.nodes.length);
    if (lack !== null) options.onNote(lack);
    return null;
  } catch (error) {
    if (error instanceof MeshError && error.code === 'CONFIG_INVALID') throw error;
    return errorText(error);
  }
}

/** Nodes whose proxy this mesh runs; the user's own program may lack the admin socket. */

function nodesWithOwnProxy(status: MeshStatus): readonly string[] {
  const external = status.actors.filter(
    (actor) => actor.name === 'node-proxy' && actor.state === 'external',
  );
  return status.nodes
    .map((node) => node.name)
    .filter((name) => !external.some((actor) => actor.node === name));
}
