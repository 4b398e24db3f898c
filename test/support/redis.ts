/** Runs a private Redis for a test, with its own directory, ACL users of every role and a random key prefix. */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { Redis } from 'ioredis';
import { redisUsers } from '../../lib/bus/acl.ts';
import { writeAclFiles } from '../../lib/bus/acl-files.ts';
import type { BusConfig } from '../../lib/bus/config.ts';
import { startPrivateRedis } from './private-redis.ts';
import type { PrivateRedis } from './private-redis.ts';
import type { TeardownOwner } from './actor-context.ts';
import { makeScratch } from './leftovers.ts';

/** A private Redis server. The end of the test removes everything. */
export interface TestRedis {
  readonly socketPath: string;
  readonly prefix: string;
  /** Returns the bus configuration of the named user; the default `admin` may do everything. */
  config(user?: string): BusConfig;
  /** Returns the environment of an actor that uses this Redis as the named user. */
  environment(user?: string): Record<string, string>;
  /** Creates a raw client; the end of the test closes it. */
  client(user?: string): Redis;
  /** Sends SIGKILL. */
  kill(): Promise<void>;
  /** Sends SIGSTOP: the server keeps its connections and does not answer. */
  pause(): void;
  resume(): void;
  /** Restarts the server after {@link kill}, with its data or without. */
  start(options?: { readonly empty?: boolean }): Promise<void>;
}

/** Starts a Redis with users for `nodes` (default node-1, node-2). */
export async function startTestRedis(
  t: TeardownOwner & { log(text: string): void },
  options: { readonly nodes?: readonly string[]; readonly started?: boolean } = {},
): Promise<TestRedis> {
  const dir = await makeScratch('redis');
  const prefix = `t${randomBytes(4).toString('hex')}`;
  const nodes = options.nodes ?? ['node-1', 'node-2'];
  const users = [...redisUsers(nodes), { name: 'admin', role: 'admin', node: null } as const];
  const aclFile = join(dir, 'users.acl');
  const { passwordFiles } = await writeAclFiles({
    users,
    prefix,
    secretsDir: join(dir, 'secrets'),
    aclFile,
  });
  const socketPath = join(dir, 'redis.sock');
  const dataDir = join(dir, 'data');
  let server: PrivateRedis | null = null;
  const clients: Redis[] = [];
  t.teardown(async () => {
    for (const client of clients) client.disconnect();
    if (server !== null) {
      process.kill(server.pid, 'SIGCONT');
      await server.kill();
    }
    await rm(dir, { recursive: true, force: true });
  });
  const passwordFile = (user: string): string => {
    const file = passwordFiles.get(user);
    if (file === undefined) throw new Error(`no Redis user ${user}`);
    return file;
  };
  const redis: TestRedis = {
    socketPath,
    prefix,
    config: (user = 'admin') => ({
      endpoint: { kind: 'unix', path: socketPath },
      username: user,
      passwordFile: passwordFile(user),
      caFile: null,
      prefix,
    }),
    environment: (user = 'admin') => ({
      REDIS_URL: `unix://${socketPath}`,
      REDIS_USERNAME: user,
      REDIS_PASSWORD_FILE: passwordFile(user),
      WEFT_REDIS_PREFIX: prefix,
    }),
    client: (user = 'admin') => {
      const password = readFileSync(passwordFile(user), 'utf8').trim();
      const client = new Redis({ path: socketPath, username: user, password, protocol: 2 });
      client.on('error', (error) => t.log(`redis client: ${error.message}`));
      clients.push(client);
      return client;
    },
    kill: async () => {
      await server?.kill();
      server = null;
    },
    pause: () => {
      if (server !== null) process.kill(server.pid, 'SIGSTOP');
    },
    resume: () => {
      if (server !== null) process.kill(server.pid, 'SIGCONT');
    },
    start: async ({ empty = false } = {}) => {
      if (empty) await rm(dataDir, { recursive: true, force: true });
      server = await startPrivateRedis({ socketPath, dataDir, aclFile });
    },
  };
  if (options.started !== false) await redis.start();
  return redis;
}
