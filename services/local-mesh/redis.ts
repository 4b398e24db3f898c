/** The Redis of a local mesh: its files, and the process as the supervisor keeps it running. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';
import { redisUsers } from '../../lib/bus/acl.ts';
import { renderRedisConfig } from '../../lib/bus/private-redis.ts';
import type { ProcessSpec } from './managed-process.ts';
import { logFile } from './mesh-paths.ts';
import type { MeshPaths } from './mesh-paths.ts';
import { netnsPath } from './namespaces.ts';
import type { MeshPlan } from './topology.ts';

/** Each mesh has a Redis of its own, so its keys need no other prefix. */
const KEY_PREFIX = 'weft';

/** Where Redis keeps its files. */
interface RedisFiles {
  /** The folder of configuration, users and data; default the socket's. */
  readonly directory?: string;
  /** The group of this process may read the passwords and connect, for actors that run as another user. */
  readonly groupAccess?: boolean;
}

/** Writes configuration, users and passwords. Passwords that exist are kept. */
export async function writeRedisFiles(
  plan: MeshPlan,
  paths: MeshPaths,
  files: RedisFiles = {},
): Promise<void> {
  const { directory = paths.redisDir, groupAccess = false } = files;
  const dataDir = join(directory, 'data');
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

function configFile(directory: string): string {
  return join(directory, 'redis.conf');
}

/** Redis in the control namespace, where `weft down` finds it even after a crash. */
export function redisProcess(plan: MeshPlan, paths: MeshPaths): ProcessSpec {
  return {
    name: 'redis',
    node: null,
    command: [
      'nsenter',
      `--net=${netnsPath(plan.control.netns)}`,
      '--',
      'redis-server',
      configFile(paths.redisDir),
    ],
    env: { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
    logFile: logFile(paths, 'redis', null),
    adminSocket: null,
  };
}
