import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { prepareMesh } from '../../container-mesh/prepare.ts';
import type { PreparedPlaces } from '../../container-mesh/prepare.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { parseNodeCount } from '../../local-mesh/mesh-request.ts';
import { planMesh } from '../../local-mesh/topology.ts';

interface Options extends PreparedPlaces {
  readonly mesh?: string;
  readonly nodes?: string;
}

/** Adds `weft prepare`: the part of `weft up` that containers cannot do for themselves. */
export function register(command: Command): void {
  command
    .option('--mesh <name>', 'name of the mesh')
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .option('--redis-dir <folder>', "Redis's own files, apart from its socket")
    .option('--give <folder>', "copy each role's secrets to its own folder in this one")
    .option('--done <file>', 'write this file when everything is written')
    .action(prepare);
}

async function prepare(options: Options): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  await prepareMesh(planMesh(paths.mesh, parseNodeCount(options.nodes)), paths, options);
}
