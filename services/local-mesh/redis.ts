/** The Redis of a local mesh: its files, and the process as the supervisor keeps it running. */
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';
import { redisUsers } from '../../lib/bus/acl.ts';
import { installedPath } from '../../lib/files/installation.ts';
import type { ProcessSpec } from './managed-process.ts';
import { logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { netnsPath } from './namespaces.ts';
import type { MeshPlan } from './topology.ts';

/** Each mesh has its own Redis, so all meshes use the same prefix. */
const KEY_PREFIX = 'weft';
/** Repairs a damaged append-only file before it runs Redis. */
const START_SCRIPT = installedPath('infra/redis/serve.sh');

/** The files of the mesh's Redis. */
interface RedisFiles {
  /** The folder of configuration, users and data; default the socket's. */
  readonly directory?: string | undefined;
  /** Lets this process's group read the passwords and connect, for actors that run as another user. */
  readonly groupAccess?: boolean;
}

/** Writes configuration, users and passwords. Keeps existing passwords. */
export async function writeRedisFiles(
  plan: MeshPlan,
  paths: MeshPaths,
  files: RedisFiles = {},
): Promise<void> {
  const { directory = paths.redisDir, groupAccess = false } = files;
  const dataDir = dataFolder(directory);
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  const aclFile = join(directory, 'users.acl');
  await writeAclFiles({
    users: redisUsers(plan.nodes.map((node) => node.name)),
    prefix: KEY_PREFIX,
    secretsDir: paths.redisSecretsDir,
    aclFile,
    groupReads: groupAccess,
  });
  const config = renderRedisConfig({
    socketPath: paths.redisSocket,
    dataDir,
    aclFile,
    groupConnects: groupAccess,
  });
  await writeFile(configFile(directory), config, { mode: 0o600 });
}

function dataFolder(directory: string): string {
  return join(directory, 'data');
}

function configFile(directory: string): string {
  return join(directory, 'redis.conf');
}

/** The Redis process. It runs in the control namespace, so `weft down` finds it after a crash too. */
export function redisProcess(plan: MeshPlan, paths: MeshPaths): ProcessSpec {
  return {
    name: 'redis',
    node: null,
    command: [
      'nsenter',
      `--net=${netnsPath(plan.control.netns)}`,
      '--',
      'sh',
      START_SCRIPT,
      dataFolder(paths.redisDir),
      configFile(paths.redisDir),
    ],
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
    logFile: logFile(paths, 'redis', null),
    adminSocket: null,
  };
}

/** The files and the socket of a Redis. */
export interface RedisServerFiles {
  readonly socketPath: string;
  /** Directory of the append-only file and its manifest, which outlive the process. */
  readonly dataDir: string;
  /** Written by `writeAclFiles`. */
  readonly aclFile: string;
  /** Lets the group of the Redis process connect. */
  readonly groupConnects: boolean;
}

/** The configuration file of a Redis on a unix socket, without a TCP port, with an append-only file and an ACL file. */
export function renderRedisConfig(options: RedisServerFiles): string {
  const lines = [
    'port 0',
    `unixsocket ${quote(options.socketPath)}`,
    `unixsocketperm ${options.groupConnects ? 770 : 700}`,
    `dir ${quote(options.dataDir)}`,
    `aclfile ${quote(options.aclFile)}`,
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    // Refuse writes under memory pressure; evicted keys would break jobs and tables.
    'maxmemory-policy noeviction',
    'daemonize no',
    'logfile ""',
    // Free large tables in the background, so that other clients do not wait.
    'lazyfree-lazy-user-del yes',
    'lazyfree-lazy-server-del yes',
  ];
  return `${lines.join('\n')}\n`;
}

function quote(path: string): string {
  return `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

/** Whether a Redis answers on the socket. The refusal of an unauthenticated PING is an answer. */
export function redisAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    const finish = (up: boolean): void => {
      socket.destroy();
      resolve(up);
    };
    socket.setTimeout(1_000, () => finish(false));
    // The socket is absent or refuses connections while Redis starts.
    socket.once('error', () => finish(false));
    socket.once('connect', () => socket.write('PING\r\n'));
    socket.once('data', (data) => finish(/^(\+PONG|-NOAUTH)/.test(data.toString())));
  });
}
