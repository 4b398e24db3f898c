import { once } from 'node:events';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import { ContainerPods } from '../containers/container-pods.ts';
import { EngineApi } from '../containers/engine-api.ts';
import { ManifestApi } from '../local/manifest-api.ts';
import { meshPaths } from '../local/mesh-paths.ts';
import { parseNodeCount } from '../local/mesh-request.ts';
import { planMesh } from '../local/topology.ts';

/** Adds `weft container-pods`: the kubelet's part in a mesh of containers. */
export function register(program: Command): void {
  program
    .command('container-pods', { hidden: true })
    .description('tell the mesh which containers are its pods')
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
  const log = createLogger({ actor: 'container-pods' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  const pods = new ContainerPods({
    engine: new EngineApi(socket),
    api: new ManifestApi(paths.controlSocket),
    paths,
    nodes: plan.nodes.map(({ name }) => name),
    clock: systemClock,
    log,
  });
  await pods.start();
  await stopped;
  await pods.stop();
}
