import type { Command } from 'commander';
import { processEnvironment } from '../../../lib/config/env.ts';
import { programPath } from '../../../lib/files/installation.ts';
import { superviseContainers } from '../../container-mesh/supervise.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import { parseNodeCount } from '../../local-mesh/mesh-request.ts';
import { planMesh } from '../../local-mesh/topology.ts';

/** The command that runs something in a container, in this process's own image. */
const MAIN = programPath('services/cli/main.ts');

/** Adds `weft supervise-containers`: the supervisor of a mesh of containers. */
export function register(command: Command): void {
  command
    .argument('<socket>', 'unix socket of the Docker engine')
    .option('--mesh <name>', 'name of the mesh')
    .option('--nodes <n>', 'number of nodes (default: 2)')
    .action(run);
}

async function run(
  socket: string,
  options: { readonly mesh?: string; readonly nodes?: string },
): Promise<void> {
  const paths = meshPaths(options.mesh, processEnvironment());
  const plan = planMesh(paths.mesh, parseNodeCount(options.nodes));
  const weft = [process.execPath, ...process.execArgv, MAIN];
  const enter = (id: string): readonly string[] => [
    ...weft,
    'container-exec',
    '--engine',
    socket,
    id,
    '--',
  ];
  await superviseContainers({ plan, paths, socket, enter });
}
