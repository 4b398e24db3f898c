/** Finds the mesh of a command, and its pods. */
import { basename } from 'node:path';
import { processEnvironment } from '../../lib/config/env.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { meshPaths } from '../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { requireMesh } from '../local-mesh/mesh-record.ts';
import { insidePod, mountsFile } from '../local-mesh/pod-namespaces.ts';
import type { PodLine } from '../local-mesh/supervisor-api.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';
import type { ObjectReference } from './references.ts';

/** A running mesh. */
export interface RunningMesh {
  readonly paths: MeshPaths;
  readonly plan: MeshPlan;
}

/** Finds the mesh of this name, or of the environment's. Throws CONFIG_INVALID, and STATE_UNAVAILABLE that says how to start it. */
export async function openMesh(name: string | undefined): Promise<RunningMesh> {
  const paths = meshPaths(name, processEnvironment());
  return { paths, plan: (await requireMesh(paths)).plan };
}

/** The running pod of this name, if there is one. */
export function findPod(
  pods: readonly PodLine[],
  { namespace, name }: ObjectReference,
): PodLine | null {
  return pods.find((pod) => pod.namespace === namespace && pod.name === name) ?? null;
}

/** {@link findPod} for a pod that must run. Throws STATE_UNAVAILABLE that names the pod. */
export function requirePod(pods: readonly PodLine[], wanted: ObjectReference): PodLine {
  const found = findPod(pods, wanted);
  if (found !== null) return found;
  throw new MeshError(
    'STATE_UNAVAILABLE',
    `no pod ${wanted.namespace}/${wanted.name} runs in the mesh; see: weft get pods`,
  );
}

/** The command line that enters a pod: its application's namespaces, or those of its network. */
export function enterPod(
  paths: MeshPaths,
  pod: PodLine,
  where: 'application' | 'network',
): readonly string[] {
  if (pod.enter !== undefined) return pod.enter[where];
  return insidePod({
    netns: basename(pod.netns),
    mountsFile: mountsFile(paths.mountsDir, pod.uid),
  });
}
