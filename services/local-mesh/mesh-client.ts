/** Queries the processes of a running mesh: its supervisor, its node agents and its node proxies. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { compareText } from '../../lib/collections/compare.ts';
import type { ActorName } from './actors.ts';
import { askJson, ask } from './unix-http.ts';
import type { HttpServerPlace } from './unix-http.ts';
import { adminSocket, processName } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import type { Upgraded } from './role-processes.ts';
import type { MeshStatus, PodLine } from './supervisor-api.ts';
import type { CertificateRecord } from '../../lib/identity/certificate-records.ts';
import type { Nack } from '../../lib/xds/nack-log.ts';
import type { ConnectionRecord } from '../../workers/listener/protocol/connections.ts';

/** The fields used here of one row of a node agent's list. */
export interface EnrolmentLine {
  readonly podUid: string;
  readonly state: string;
  /** Times that rules or listeners were missing and were made again. */
  readonly driftRepairs: number;
}

/** Finds the admin servers of a mesh's processes. `node` is null for a role of the whole mesh. */
export interface AdminServers {
  /** The one that answers for the role. Throws STATE_UNAVAILABLE when there is none. */
  one(role: ActorName, node: string | null): Promise<HttpServerPlace>;
  /** The servers of all processes of the role, draining ones included. Throws STATE_UNAVAILABLE when there is none. */
  all(role: ActorName, node: string | null): Promise<readonly HttpServerPlace[]>;
}

/** The admin servers of a local mesh: unix sockets. */
export function localServers(paths: MeshPaths): AdminServers {
  const one = (role: ActorName, node: string | null): string => adminSocket(paths, role, node);
  return {
    one: async (role, node) => one(role, node),
    all: async (role, node) =>
      role === 'node-proxy' && node !== null ? proxySockets(paths, node) : [one(role, node)],
  };
}

/** The data of `weft status`. Throws STATE_UNAVAILABLE. */
export function askStatus(paths: MeshPaths): Promise<MeshStatus> {
  return askJson<MeshStatus>({ socket: paths.supervisorSocket, path: '/status' });
}

/** The pods of the mesh. Throws STATE_UNAVAILABLE. */
export function askPods(paths: MeshPaths): Promise<readonly PodLine[]> {
  return askJson<readonly PodLine[]>({ socket: paths.supervisorSocket, path: '/pods' });
}

/**
 * Asks the supervisor to take the mesh down; it answers before it is done. Throws STATE_UNAVAILABLE, and
 * STATE_CONFLICT for a mesh of containers.
 */
export async function askDown(paths: MeshPaths): Promise<void> {
  const { status, body } = await ask({
    socket: paths.supervisorSocket,
    method: 'POST',
    path: '/down',
  });
  if (status === 409) throw new MeshError('STATE_CONFLICT', body.trim());
}

/**
 * Asks the supervisor to replace roles, one after another. Throws STATE_UNAVAILABLE with the reason when a role could not
 * be replaced; the old processes of that role continue.
 */
export function askUpgrade(
  paths: MeshPaths,
  roles: readonly string[],
  timeoutMs: number,
): Promise<readonly Upgraded[]> {
  const query = new URLSearchParams([
    ...roles.map((role): [string, string] => ['role', role]),
    ['timeoutMs', String(timeoutMs)],
  ]);
  return askJson<readonly Upgraded[]>({
    socket: paths.supervisorSocket,
    method: 'POST',
    path: `/upgrade?${query.toString()}`,
    // A start and an end may each take the timeout.
    timeoutMs: roles.length * 2 * timeoutMs + 10_000,
  });
}

/** The pods a node's agent knows. Throws STATE_UNAVAILABLE. */
export async function askEnrolments(
  servers: AdminServers,
  node: string,
): Promise<readonly EnrolmentLine[]> {
  return askJson<readonly EnrolmentLine[]>({
    socket: await servers.one('node-agent', node),
    path: '/node-agent/enrolments',
  });
}

/** The responses that clients of the control plane refused, oldest first. Throws STATE_UNAVAILABLE. */
export async function askNacks(servers: AdminServers): Promise<readonly Nack[]> {
  // Each replica knows its own clients.
  const path = '/control-plane/nacks';
  const answers = await Promise.all(
    (await servers.all('control-plane', null)).map((socket) =>
      askJson<{ nacks: readonly Nack[] }>({ socket, path }),
    ),
  );
  return answers.flatMap(({ nacks }) => nacks).sort((a, b) => compareText(a.at, b.at));
}

/** A status condition that the control plane finds. */
export interface ConditionLine {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly type: string;
  readonly status: string;
  readonly reason: string;
  readonly message: string;
}

/** The status conditions of the control plane's objects. Throws STATE_UNAVAILABLE. */
export async function askConditions(servers: AdminServers): Promise<readonly ConditionLine[]> {
  const answer = await askJson<{ conditions: readonly ConditionLine[] }>({
    socket: await servers.one('control-plane', null),
    path: '/control-plane/conditions',
  });
  return answer.conditions;
}

/** The live connections of a node's proxy. Throws STATE_UNAVAILABLE. */
export function askConnections(
  servers: AdminServers,
  node: string,
): Promise<readonly ConnectionRecord[]> {
  return askRecords(servers, node, '/node-proxy/connections');
}

/** The connections of a node's proxy, including recently ended ones, with access lines. Throws STATE_UNAVAILABLE. */
export function askTraceable(
  servers: AdminServers,
  node: string,
): Promise<readonly ConnectionRecord[]> {
  return askRecords(servers, node, '/node-proxy/connections?ended&lines');
}

async function askRecords(
  servers: AdminServers,
  node: string,
  path: string,
): Promise<readonly ConnectionRecord[]> {
  const answers = await Promise.allSettled(
    (await servers.all('node-proxy', node)).map((socket) => askSocket(socket, path)),
  );
  const given = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []));
  // A killed proxy leaves its socket behind. When no proxy answers, the first error is the reason.
  for (const one of given.length > 0 ? [] : answers)
    if (one.status === 'rejected') throw one.reason;
  return given.flat();
}

async function askSocket(
  socket: HttpServerPlace,
  path: string,
): Promise<readonly ConnectionRecord[]> {
  const answer = await askJson<{ connections: readonly ConnectionRecord[] }>({ socket, path });
  return answer.connections;
}

/** The admin sockets of a node's proxies, draining ones included; the role's standing socket when there are no others. */
async function proxySockets(paths: MeshPaths, node: string): Promise<readonly string[]> {
  const name = processName('node-proxy', node);
  const files = await readdir(paths.adminDir).catch(() => []);
  const own = files.filter(
    (file) => file.startsWith(`${name}.`) && /^\d+\.sock$/.test(file.slice(name.length + 1)),
  );
  if (own.length === 0) return [adminSocket(paths, 'node-proxy', node)];
  return own.map((file) => join(paths.adminDir, file));
}

/** Counts the connections that the replaced proxies of a node still carry; a proxy that ended counts as 0. */
export async function countDraining(paths: MeshPaths, node: string): Promise<number> {
  const answers = await Promise.allSettled(
    (await proxySockets(paths, node)).map(carriedByDraining),
  );
  return answers.reduce((sum, one) => sum + (one.status === 'fulfilled' ? one.value : 0), 0);
}

async function carriedByDraining(socket: string): Promise<number> {
  const status = await askJson<{ actors: readonly { state: string }[] }>({
    socket,
    path: '/status',
  });
  if (status.actors[0]?.state !== 'draining') return 0;
  return (await askSocket(socket, '/node-proxy/connections')).length;
}

/** The certificates a node's proxy holds. Throws STATE_UNAVAILABLE. */
export async function askCertificates(
  servers: AdminServers,
  node: string,
): Promise<readonly CertificateRecord[]> {
  const answer = await askJson<{ certificates: readonly CertificateRecord[] }>({
    socket: await servers.one('node-proxy', node),
    path: '/node-proxy/certificates',
  });
  return answer.certificates;
}

/** `namespace/name` of the workloads that a node's proxy would reach over HBONE. Throws STATE_UNAVAILABLE. */
export async function askHboneWorkloads(
  paths: MeshPaths,
  node: string,
): Promise<ReadonlySet<string>> {
  const dump = await askJson<{
    workloads: readonly { namespace: string; name: string; protocol: string }[];
  }>({
    socket: adminSocket(paths, 'node-proxy', node),
    path: '/node-proxy/config_dump',
  });
  return new Set(
    dump.workloads
      .filter(({ protocol }) => protocol === 'HBONE')
      .map(({ namespace, name }) => `${namespace}/${name}`),
  );
}

/** Uids of the enrolled pods; a node whose agent is away contributes none. */
export async function enrolledPods(
  paths: MeshPaths,
  nodes: readonly string[],
): Promise<ReadonlySet<string>> {
  const servers = localServers(paths);
  const lists = await Promise.allSettled(nodes.map((node) => askEnrolments(servers, node)));
  return new Set(
    lists
      .flatMap((list) => (list.status === 'fulfilled' ? list.value : []))
      .filter((line) => line.state === 'enabled')
      .map((line) => line.podUid),
  );
}
