/** Runs redis-server as a child of the test. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { redisAnswers, renderRedisConfig } from '../../services/local-mesh/redis.ts';
import { until } from './until.ts';

/** A running redis-server. */
export interface PrivateRedis {
  readonly pid: number;
  /** Sends SIGKILL and resolves when the process has ended. Idempotent. */
  kill(): Promise<void>;
}

/**
 * Starts redis-server with the configuration of a local mesh and resolves when it answers. Throws when the program is
 * missing or ends while it starts.
 */
export async function startPrivateRedis(options: {
  readonly socketPath: string;
  readonly dataDir: string;
  readonly aclFile: string;
}): Promise<PrivateRedis> {
  const { dataDir, socketPath } = options;
  const configFile = `${socketPath}.conf`;
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  await rm(socketPath, { force: true });
  await writeFile(configFile, renderRedisConfig({ ...options, groupConnects: false }));
  const child = spawn('redis-server', [configFile], { stdio: 'ignore' });
  const exited = once(child, 'exit');
  const ended = exited.then(() => {
    throw new Error(`redis-server ended while starting: ${child.exitCode ?? child.signalCode}`);
  });
  await Promise.race([ended, until(() => redisAnswers(socketPath), { what: 'Redis answers' })]);
  ended.catch(() => undefined);
  return {
    pid: child.pid ?? 0,
    kill: async () => {
      child.kill('SIGKILL');
      await exited;
    },
  };
}
