/** How the supervisor starts an actor, and which of the user's variables it passes on. */
import type { Environment } from '../../../lib/config/env.ts';
import { hostConfig } from '../../../lib/actor/host-config.ts';
import { loadActor } from '../actors.ts';
import { actorEnv } from './actor-env.ts';
import { inheritedEnv, setsActors } from './inherited-env.ts';
import type { ProcessSpec } from './managed-process.ts';
import { adminSocket, logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { netnsPath } from './namespaces.ts';
import type { Role } from './roles.ts';
import type { MeshPlan, NodePlan } from './topology.ts';

/** The launcher beside this folder. */
const WEFT = new URL('../weft', import.meta.url).pathname;

/** The process of an actor role, inside its namespace. */
export async function actorProcess(
  role: Role,
  mesh: { readonly plan: MeshPlan; readonly paths: MeshPaths; readonly environment: Environment },
): Promise<ProcessSpec> {
  const { plan, paths } = mesh;
  const node = role.node?.name ?? null;
  const netns = role.node?.netns ?? plan.control.netns;
  return {
    name: role.actor,
    node,
    command: ['nsenter', `--net=${netnsPath(netns)}`, '--', WEFT, 'run', role.actor],
    env: { ...(await ownEnvironment(role, mesh.environment)), ...actorEnv(role, plan, paths) },
    logFile: logFile(paths, role.actor, node),
    adminSocket: adminSocket(paths, role.actor, node),
  };
}

/** What the role's actor gets of the environment `weft up` was called in. Loads the actor only if that matters. */
async function ownEnvironment(
  role: Role,
  environment: Environment,
): Promise<Readonly<Record<string, string>>> {
  if (!setsActors(environment)) return inheritedEnv(environment, new Set());
  const definition = await loadActor(role.actor);
  const known = { ...hostConfig.variables, ...definition.config.variables };
  return inheritedEnv(environment, new Set(Object.keys(known)));
}

/**
 * The process of a node's default servers; steered through its socket. It opens its sockets in the pods' namespaces
 * and runs in its node's, where whoever cleans up after a crash finds it.
 */
export function sampleProcess(
  node: NodePlan,
  mesh: { readonly paths: MeshPaths; readonly environment: Environment },
): ProcessSpec {
  const server = new URL('sample-server.ts', import.meta.url).pathname;
  const path = mesh.environment['PATH'] ?? '/usr/sbin:/usr/bin:/sbin:/bin';
  return {
    name: 'sample-server',
    node: node.name,
    command: [
      'nsenter',
      `--net=${netnsPath(node.netns)}`,
      '--',
      process.execPath,
      server,
      sampleSocket(mesh.paths, node.name),
    ],
    env: { PATH: path, ...cacheEnv(mesh.environment) },
    logFile: logFile(mesh.paths, 'sample-server', node.name),
    adminSocket: null,
  };
}

/** The socket that steers a node's default servers. */
export function sampleSocket(paths: MeshPaths, node: string): string {
  return adminSocket(paths, 'sample-server', node);
}

function cacheEnv(environment: Environment): Readonly<Record<string, string>> {
  const cache = environment['NODE_COMPILE_CACHE'];
  return cache === undefined ? {} : { NODE_COMPILE_CACHE: cache };
}
