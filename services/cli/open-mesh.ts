/** Chooses the mesh of a command: a local one, or one on a cluster. */
import { processEnvironment } from '../../lib/config/env.ts';
import { UsageError } from '../../lib/errors/usage-error.ts';
import { liveRecord } from '../local-mesh/mesh-record.ts';
import { meshPaths } from '../local-mesh/mesh-paths.ts';
import { kubeconfigFiles } from './cluster/access.ts';
import { localMesh } from './local-mesh.ts';
import type { Mesh } from './mesh.ts';
import type { CommonOptions } from './output.ts';
import { openMesh } from './running-mesh.ts';

/**
 * Whether a command is about a cluster: when an option of a cluster is given; and without `--mesh`, `WEFT_MESH` and a local mesh
 * that runs, when there is a kubeconfig. Throws UsageError for options of both.
 */
export async function isCluster(choice: CommonOptions): Promise<boolean> {
  const { mesh, kubeconfig, context, namespace } = choice;
  const asked = [kubeconfig, context, namespace].some((option) => option !== undefined);
  if (asked && mesh !== undefined) {
    throw new UsageError('--mesh names a local mesh, and cannot go with options of a cluster');
  }
  if (asked || mesh !== undefined) return asked;
  const environment = processEnvironment();
  if (environment['WEFT_MESH'] !== undefined || environment['WEFT_RUN_DIR'] !== undefined) {
    return false;
  }
  if ((await liveRecord(meshPaths(undefined, environment))) !== null) return false;
  return kubeconfigFiles().length > 0;
}

/** Runs `work` with the chosen mesh, and closes it. */
export async function withMesh<T>(
  choice: CommonOptions,
  work: (mesh: Mesh) => Promise<T>,
): Promise<T> {
  if (!(await isCluster(choice))) return work(localMesh(await openMesh(choice.mesh)));
  const { withClusterMesh } = await import('./cluster/cluster-mesh.ts');
  return withClusterMesh(choice, work);
}
