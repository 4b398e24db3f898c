import { join } from 'node:path';
import type { Environment } from '../../lib/config/env.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** The default mesh name. */
export const DEFAULT_MESH = 'weft';
/**
 * Mesh names have no dash, so the namespaces of one mesh (`<name>-…`) are never taken for another's. They are short
 * enough for an interface name.
 */
const MESH_NAME = /^[a-z][a-z0-9]{0,14}$/;
/** sun_path holds 108 bytes; the longest socket below the run directory needs about 50. */
const LONGEST_RUN_DIR_BYTES = 56;

/** The files of a local mesh. Everything below `root` belongs to the mesh and is removed with it. */
export type MeshPaths = Readonly<ReturnType<typeof pathsBelow>>;

/** The paths of the mesh named by `--mesh` or WEFT_MESH, at WEFT_RUN_DIR or below /run. Throws CONFIG_INVALID. */
export function meshPaths(name: string | undefined, environment: Environment): MeshPaths {
  const mesh = name ?? environment['WEFT_MESH'] ?? DEFAULT_MESH;
  if (!MESH_NAME.test(mesh)) {
    throw new MeshError(
      'CONFIG_INVALID',
      `mesh name ${JSON.stringify(mesh)} must be 1 to 15 lower-case letters and digits, a letter first`,
    );
  }
  const chosen = environment['WEFT_RUN_DIR'];
  const root =
    chosen !== undefined && chosen !== ''
      ? chosen.replace(/\/+$/, '')
      : mesh === DEFAULT_MESH
        ? '/run/weft'
        : `/run/weft-${mesh}`;
  if (!root.startsWith('/') || Buffer.byteLength(root) > LONGEST_RUN_DIR_BYTES) {
    throw new MeshError(
      'CONFIG_INVALID',
      `WEFT_RUN_DIR must be an absolute path of at most ${LONGEST_RUN_DIR_BYTES} bytes, got ${JSON.stringify(root)}`,
    );
  }
  return pathsBelow(mesh, root);
}

function pathsBelow(mesh: string, root: string) {
  return {
    mesh,
    root,
    record: join(root, 'mesh.json'),
    supervisorSocket: join(root, 'supervisor.sock'),
    redisDir: join(root, 'redis'),
    redisSocket: join(root, 'redis/redis.sock'),
    redisSecretsDir: join(root, 'secrets/redis'),
    controlDir: join(root, 'control'),
    controlSocket: join(root, 'control/api.sock'),
    podsSocket: join(root, 'pods/pods.sock'),
    caDir: join(root, 'ca'),
    rootsFile: join(root, 'roots/root-cert.pem'),
    tokensDir: join(root, 'tokens'),
    logsDir: join(root, 'logs'),
    adminDir: join(root, 'admin'),
    hostsDir: join(root, 'hosts'),
    mountsDir: join(root, 'mounts'),
    nodesDir: join(root, 'nodes'),
  };
}

/** `actor` or `actor.node`: the name of a process in files and messages. */
export function processName(actor: string, node: string | null): string {
  return node === null ? actor : `${actor}.${node}`;
}

/** The admin socket of an actor process. */
export function adminSocket(paths: MeshPaths, actor: string, node: string | null): string {
  return join(paths.adminDir, `${processName(actor, node)}.sock`);
}

/** The admin socket of one of several processes of a role; {@link adminSocket} points to the one that answers for all. */
export function instanceSocket(
  paths: MeshPaths,
  actor: string,
  node: string | null,
  number: number,
): string {
  return join(paths.adminDir, `${processName(actor, node)}.${number}.sock`);
}

/** The log file of a process of the mesh. */
export function logFile(paths: MeshPaths, actor: string, node: string | null): string {
  return join(paths.logsDir, `${processName(actor, node)}.log`);
}

/** The directory of a node's PodRecord files. */
export function podRecordsDir(paths: MeshPaths, node: string): string {
  return join(paths.nodesDir, node, 'pods');
}

/** The node's ZDS socket. */
export function zdsSocket(paths: MeshPaths, node: string): string {
  return join(paths.nodesDir, node, 'ztunnel.sock');
}

/** The token a process presents to control plane and CA. */
export function tokenFile(paths: MeshPaths, bearer: string): string {
  return join(paths.tokensDir, bearer, 'istio-token');
}
