import { basename } from 'node:path';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { insidePod, mountsFile } from '../local-mesh/pod-namespaces.ts';
import type { PodLine } from '../local-mesh/supervisor-api.ts';

/** The command line that enters a pod: where its application runs, or where its network is held. */
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
