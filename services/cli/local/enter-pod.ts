import { basename } from 'node:path';
import type { MeshPaths } from './mesh-paths.ts';
import { insidePod, mountsFile } from './pod-namespaces.ts';
import type { PodLine } from './supervisor-api.ts';

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
