/** How the supervisor starts an actor, and which of the user's variables it passes on. */
import { rename, rm, symlink } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Environment } from '../../lib/config/env.ts';
import { hostConfig } from '../../lib/actor/host-config.ts';
import { installedPath, programPath } from '../../lib/files/installation.ts';
import { loadActor } from './actors.ts';
import type { ActorName } from './actors.ts';
import { actorDefaults, actorEnv } from './actor-env.ts';
import { inheritedEnv, setsActors } from './inherited-env.ts';
import type { ProcessSpec } from './managed-process.ts';
import { adminSocket, instanceSocket, logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { netnsPath } from './namespaces.ts';
import type { Instance, RoleProcessesOptions } from './role-processes.ts';
import type { Role } from './roles.ts';
import type { MeshPlan, NodePlan } from './topology.ts';

/** The launcher. */
const WEFT = installedPath('services/cli/weft');

/** Roles that may have several processes at a time: these share work or listeners, or take turns by a lease. */
export const SIDE_BY_SIDE: ReadonlySet<string> = new Set([
  'xds-ingester',
  'policy-evaluator',
  'cert-fetcher',
  'node-proxy',
]);

/** Variables that bound a drain. */
const DRAIN_VARIABLES = [
  'CONNECTION_TERMINATION_DEADLINE',
  'TERMINATION_GRACE_PERIOD_SECONDS',
] as const;

/** The parts of a local mesh that its actors' processes depend on. */
interface ActorMesh {
  readonly plan: MeshPlan;
  readonly paths: MeshPaths;
  readonly environment: Environment;
  /** Number of proxies on each node. */
  readonly proxies: number;
}

/** The processes of an actor role, inside its namespace. */
export async function actorProcesses(role: Role, mesh: ActorMesh): Promise<RoleProcessesOptions> {
  const { paths } = mesh;
  const node = role.node?.name ?? null;
  const base = await actorProcess(role, mesh);
  const common = { name: role.actor, node, count: role.actor === 'node-proxy' ? mesh.proxies : 1 };
  const standing = adminSocket(paths, role.actor, node);
  const drainDeadlineMs = drainDeadlineOf(role.actor, base.env);
  if (!SIDE_BY_SIDE.has(role.actor)) {
    const spec = ({ generation }: Instance): ProcessSpec => ({ ...base, generation });
    return {
      ...common,
      drainDeadlineMs,
      replacement: 'after',
      spec,
      publish: () => Promise.resolve(),
    };
  }
  return {
    ...common,
    drainDeadlineMs,
    replacement: 'beside',
    spec: (instance) =>
      beside(base, instanceSocket(paths, role.actor, node, instance.number), instance),
    publish: (spec) => pointTo(standing, spec.adminSocket ?? standing),
  };
}

/**
 * How long a replaced process with this environment may drain, in milliseconds. Null without a deadline in the caller's
 * environment: the proxy's connections then end by themselves.
 */
export function drainDeadlineOf(actor: ActorName, env: Environment): number | null {
  const isSet = DRAIN_VARIABLES.some((name) => env[name] !== undefined);
  return actor === 'node-proxy' && !isSet ? null : hostConfig.parse(env).drainDeadlineMs;
}

/** Gives the process its own admin socket and, for a proxy, its generation. */
function beside(base: ProcessSpec, socket: string, { generation }: Instance): ProcessSpec {
  const group = base.name === 'node-proxy' ? { WEFT_NODE_PROXY_GROUP: String(generation) } : {};
  const env = { ...base.env, WEFT_ADMIN_ADDRESS: `unix:${socket}`, ...group };
  return { ...base, env, adminSocket: socket, generation };
}

/** Makes `link` point to `socket` atomically. */
async function pointTo(link: string, socket: string): Promise<void> {
  const next = `${link}.next`;
  await rm(next, { force: true });
  await symlink(basename(socket), next);
  await rename(next, link);
}

/** The process of an actor role, inside its namespace. */
export async function actorProcess(
  role: Role,
  mesh: Omit<ActorMesh, 'proxies'>,
): Promise<ProcessSpec> {
  const { plan, paths } = mesh;
  const node = role.node?.name ?? null;
  const netns = role.node?.netns ?? plan.control.netns;
  return {
    name: role.actor,
    node,
    command: ['nsenter', `--net=${netnsPath(netns)}`, '--', WEFT, 'run', role.actor],
    env: {
      ...actorDefaults(role, mesh.environment),
      ...(await ownEnvironment(role, mesh.environment)),
      ...actorEnv(role, plan, paths),
    },
    logFile: logFile(paths, role.actor, node),
    adminSocket: adminSocket(paths, role.actor, node),
  };
}

/** The part of the environment of `weft up` that the role's actor gets. Loads the actor only if that matters. */
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
 * The process of a node's default servers, controlled through its socket. It opens its sockets in the pods' namespaces
 * and runs in its node's namespace, where the clean-up after a crash finds it.
 */
export function sampleProcess(
  node: NodePlan,
  mesh: { readonly paths: MeshPaths; readonly environment: Environment },
): ProcessSpec {
  const server = programPath('services/local-mesh/sample-server.ts');
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
    env: { PATH: path },
    logFile: logFile(mesh.paths, 'sample-server', node.name),
    adminSocket: null,
  };
}

/** The socket that controls a node's default servers. */
export function sampleSocket(paths: MeshPaths, node: string): string {
  return adminSocket(paths, 'sample-server', node);
}
