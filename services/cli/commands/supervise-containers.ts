import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import type { Command } from 'commander';
import { systemClock } from '../../../lib/clock/clock.ts';
import { processEnvironment } from '../../../lib/config/env.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../lib/log/logger.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { ContainerActors, PROJECT_LABEL } from '../../container-mesh/container-actors.ts';
import { ContainerMesh } from '../../container-mesh/container-mesh.ts';
import { ContainerPods } from '../../container-mesh/container-pods.ts';
import { ContainerUpgrade } from '../../container-mesh/container-upgrade.ts';
import { Engine } from '../../container-mesh/engine.ts';
import { ManifestApi } from '../../local-mesh/manifest-api.ts';
import { meshPaths } from '../../local-mesh/mesh-paths.ts';
import type { MeshPaths } from '../../local-mesh/mesh-paths.ts';
import { writeRecord } from '../../local-mesh/mesh-record.ts';
import { parseNodeCount } from '../../local-mesh/mesh-request.ts';
import { processId } from '../../local-mesh/processes.ts';
import { supervisorServer } from '../../local-mesh/supervisor-api.ts';
import { planMesh } from '../../local-mesh/topology.ts';
import type { MeshPlan } from '../../local-mesh/topology.ts';

/** The command that runs something in a container, in this process's own image. */
const MAIN = new URL('../main.ts', import.meta.url).pathname;

/** Adds `weft supervise-containers`: the supervisor of a mesh of containers. */
export function register(program: Command): void {
  program
    .command('supervise-containers', { hidden: true })
    .description('tell the mesh which containers are its pods, and answer for its actors')
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
  const log = createLogger({ actor: 'supervisor' });
  const stopped = Promise.race([once(process, 'SIGTERM'), once(process, 'SIGINT')]);
  const engine = new Engine(socket);
  const common = { engine, paths, plan, clock: systemClock, log };
  const actors = new ContainerActors({ ...common, project: await ownProject(engine) });
  const upgrades = new ContainerUpgrade({ ...common, actors });
  const pods = new ContainerPods({
    ...common,
    api: new ManifestApi(paths.controlSocket),
    nodes: plan.nodes.map(({ name }) => name),
    enter: (id) => [
      process.execPath,
      ...process.execArgv,
      MAIN,
      'container-exec',
      '--engine',
      socket,
      id,
      '--',
    ],
    onChange: () => linkQuietly(actors, log),
  });
  const api = supervisorServer(new ContainerMesh({ plan, paths, actors, pods, upgrades }), log);
  await writeOwnRecord(plan, paths);
  await using running = new AsyncDisposableStack();
  running.defer(() => api.close());
  await api.listen({ kind: 'unix', path: paths.supervisorSocket });
  await upgrades.sweep();
  running.defer(() => pods.stop());
  await pods.start();
  await stopped;
}

/** Links the admin sockets. Logs a failure, because pods must not wait for an actor that is ending. */
async function linkQuietly(actors: ContainerActors, log: Logger): Promise<void> {
  await actors.link().catch((error: unknown) => {
    log.info({ error: errorText(error) }, 'actors.not-linked');
  });
}

/** The Compose project of this container, found by its host name. Throws CONFIG_UNSUPPORTED. */
async function ownProject(engine: Engine): Promise<string> {
  const { Config } = await engine.inspect(hostname());
  const project = Config.Labels?.[PROJECT_LABEL];
  if (project !== undefined) return project;
  throw new MeshError('CONFIG_UNSUPPORTED', `container ${hostname()} is of no Compose project`);
}

async function writeOwnRecord(plan: MeshPlan, paths: MeshPaths): Promise<void> {
  await mkdir(paths.root, { recursive: true });
  await writeRecord(paths, {
    mesh: plan.mesh,
    supervisor: present(await processId(process.pid), 'this process runs'),
    nodes: plan.nodes.length,
    external: [],
    startedAt: new Date(systemClock.now()).toISOString(),
  });
}
