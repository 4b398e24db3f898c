/** Runs a Redis master with a replica, and sentinels that watch both. */
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { randomBytes } from 'node:crypto';
import type { ExecutionContext } from 'ava';
import { Redis } from 'ioredis';
import type { BusConfig } from '../../lib/bus/config.ts';
import { makeScratch } from './leftovers.ts';
import { ownPort } from './ports.ts';
import { until } from './until.ts';

const MASTER = 'weft';
const SENTINELS = 3;

/** The servers of a test; the end of the test stops them. */
export interface SentinelRedis {
  /** Returns the bus configuration, without a user. */
  config(): BusConfig;
  /** Returns the environment of an actor. */
  environment(): Record<string, string>;
  /** A raw client of the first master. */
  readonly master: Redis;
  readonly replica: Redis;
  /** Freezes the replica's state: later writes to the master do not reach it. */
  cutReplica(): Promise<void>;
  /** Sends SIGKILL to the master. */
  killMaster(): Promise<void>;
  /** Resolves when the replica has been promoted. */
  promoted(): Promise<void>;
}

/** Starts a Redis in a folder with these lines of configuration. The end of the test stops it. */
export function startServer(
  t: ExecutionContext,
  dir: string,
  lines: readonly string[],
  mode: 'server' | 'sentinel' = 'server',
  address = '127.0.0.1',
): ChildProcess {
  mkdirSync(dir, { recursive: true });
  const file = join(dir, 'redis.conf');
  writeFileSync(
    file,
    [`dir ${dir}`, `bind ${address}`, ...(mode === 'server' ? ['save ""'] : []), ...lines, ''].join(
      '\n',
    ),
  );
  const args = mode === 'sentinel' ? [file, '--sentinel'] : [file];
  const child = spawn('redis-server', args, { stdio: 'ignore' });
  t.teardown(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  });
  return child;
}

/** Creates a raw client; the end of the test closes it. */
export function clientOf(t: ExecutionContext, port: number): Redis {
  const client = new Redis({ host: '127.0.0.1', port, protocol: 2 });
  client.on('error', (error) => t.log(`redis client: ${error.message}`));
  t.teardown(() => client.disconnect());
  return client;
}

/** Starts master, replica and sentinels, and waits until the sentinels know both. */
export async function startSentinelRedis(t: ExecutionContext): Promise<SentinelRedis> {
  const dir = await makeScratch('sentinel');
  t.teardown(() => rm(dir, { recursive: true, force: true }));
  const [first, second, ...watchers] = await Promise.all(
    Array.from({ length: 2 + SENTINELS }, ownPort),
  );
  const common = ['appendonly no', 'repl-diskless-sync-delay 0', 'protected-mode no'];
  const child = startServer(t, join(dir, 'a'), [`port ${first}`, ...common]);
  const follow = [`port ${second}`, `replicaof 127.0.0.1 ${first}`, 'repl-timeout 60', ...common];
  startServer(t, join(dir, 'b'), follow);
  const watch = [
    `sentinel monitor ${MASTER} 127.0.0.1 ${first} 2`,
    `sentinel down-after-milliseconds ${MASTER} 1000`,
    `sentinel failover-timeout ${MASTER} 3000`,
  ];
  const prefix = `t${randomBytes(4).toString('hex')}`;
  const master = clientOf(t, first ?? 0);
  const replica = clientOf(t, second ?? 0);
  await until(async () => /master_link_status:up/.test(await replica.info('replication')), {
    what: 'the replica to follow',
  });
  watchers.forEach((port, index) => {
    startServer(t, join(dir, `s${index}`), [`port ${port}`, ...watch], 'sentinel');
  });
  const sentinels = watchers.map((port) => clientOf(t, port));
  await until(
    async () => {
      const infos = await Promise.all(sentinels.map((one) => one.info('sentinel')));
      return infos.every((info) => /slaves=1,sentinels=3/.test(info));
    },
    { what: 'the sentinels to know each other', timeoutMs: 30_000 },
  );
  return {
    config: () => ({
      endpoint: {
        kind: 'sentinel',
        sentinels: watchers.map((port) => ({ host: '127.0.0.1', port })),
        master: MASTER,
        tls: false,
      },
      username: null,
      passwordFile: null,
      caFile: null,
      prefix,
    }),
    environment: () => ({
      REDIS_URL: `redis+sentinel://${watchers.map((port) => `127.0.0.1:${port}`).join(',')}/${MASTER}`,
      WEFT_REDIS_PREFIX: prefix,
    }),
    master,
    replica,
    cutReplica: async () => {
      // Nothing listens there. The sentinels repair it, but not at once.
      await replica.call('REPLICAOF', '127.0.0.1', '1');
      await until(async () => /master_link_status:down/.test(await replica.info('replication')), {
        what: 'the replica to be cut off',
      });
    },
    killMaster: async () => {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    },
    promoted: async () => {
      await until(async () => /role:master/.test(await replica.info('replication')), {
        what: 'the replica to be promoted',
        timeoutMs: 30_000,
      });
    },
  };
}
