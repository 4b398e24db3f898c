/** Supervises a mesh of containers: tells it which containers are its pods, and answers for its actors. */
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { hostname } from 'node:os';
import { systemClock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { createLogger } from '../../lib/log/logger.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { ManifestApi } from '../local-mesh/manifest-api.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { writeRecord } from '../local-mesh/mesh-record.ts';
import { processId } from '../local-mesh/processes.ts';
import { supervisorServer } from '../local-mesh/supervisor-api.ts';
import type { MeshPlan } from '../local-mesh/topology.ts';
import { ContainerActors, PROJECT_LABEL } from './container-actors.ts';
import { ContainerMesh } from './container-mesh.ts';
import { ContainerPods } from './container-pods.ts';
import { ContainerUpgrade } from './container-upgrade.ts';
import { Engine } from './engine.ts';

/** The mesh, and the engine that runs its containers. */
export interface SupervisedMesh {
  readonly plan: MeshPlan;
  readonly paths: MeshPaths;
  /** Unix socket of the Docker engine. */
  readonly socket: string;
  /** The command line that runs a command in the container of this id. */
  readonly enter: (id: string) => readonly string[];
}

/** Supervises until SIGTERM or SIGINT. Throws CONFIG_UNSUPPORTED outside a Compose project. */
export async function superviseContainers(mesh: SupervisedMesh): Promise<void> {
  const { plan, paths, socket, enter } = mesh;
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
    enter,
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
