import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { UNIX_PATH_BYTES_MAX } from './config.ts';

/** How to start a Redis of one's own. */
export interface PrivateRedisOptions {
  readonly socketPath: string;
  /** Append-only file and its manifest; kept across starts. */
  readonly dataDir: string;
  /** Lets the group of the Redis process connect. */
  readonly groupConnects?: boolean;
  /** Written by `writeAclFiles`. */
  readonly aclFile: string;
  /** Default: `redis.conf` beside the socket. */
  readonly configFile?: string;
  /** Where its log goes; default nowhere. */
  readonly log?: number | 'inherit' | 'ignore';
  /** Default `redis-server` on PATH. */
  readonly binary?: string;
}

/** How a child ended. */
export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A redis-server child. Restarting it is its owner's decision: watch {@link exited}. */
export interface PrivateRedis {
  readonly pid: number;
  readonly socketPath: string;
  readonly exited: Promise<ChildExit>;
  /** SIGTERM (Redis flushes its append-only file), SIGKILL after 5 s. Idempotent. */
  stop(): Promise<void>;
  /** SIGKILL. Idempotent. */
  kill(): Promise<void>;
}

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 5_000;
const PROBE_INTERVAL_MS = 20;

/**
 * Starts redis-server on a unix socket, without a TCP port, with an append-only file and an ACL file, and resolves when
 * it answers. Throws BUS_UNAVAILABLE that says what to do when redis-server is missing or does not come up.
 */
export async function startPrivateRedis(options: PrivateRedisOptions): Promise<PrivateRedis> {
  if (Buffer.byteLength(options.socketPath) > UNIX_PATH_BYTES_MAX) {
    throw new MeshError(
      'CONFIG_INVALID',
      `redis socket path is longer than ${UNIX_PATH_BYTES_MAX} bytes: ${options.socketPath}`,
    );
  }
  const configFile = options.configFile ?? join(dirname(options.socketPath), 'redis.conf');
  await mkdir(dirname(options.socketPath), { recursive: true });
  await mkdir(options.dataDir, { recursive: true, mode: 0o700 });
  await rm(options.socketPath, { force: true });
  await writeFile(configFile, renderRedisConfig(options), { mode: 0o600 });
  const log = options.log ?? 'ignore';
  const child = spawn(options.binary ?? 'redis-server', [configFile], {
    stdio: ['ignore', log, log],
  });
  const redis = new RedisChild(child, options.socketPath);
  await redis.started(options.binary ?? 'redis-server');
  return redis;
}

/** The configuration file of a private Redis. */
export function renderRedisConfig(options: PrivateRedisOptions): string {
  const lines = [
    'port 0',
    `unixsocket ${quote(options.socketPath)}`,
    `unixsocketperm ${options.groupConnects === true ? 770 : 700}`,
    `dir ${quote(options.dataDir)}`,
    `aclfile ${quote(options.aclFile)}`,
    'appendonly yes',
    'appendfsync everysec',
    'save ""',
    // Losing keys under memory pressure would tear jobs and tables apart: refuse writes instead.
    'maxmemory-policy noeviction',
    'daemonize no',
    'logfile ""',
    // Big tables are dropped in the background, not in the way of other clients.
    'lazyfree-lazy-user-del yes',
    'lazyfree-lazy-server-del yes',
  ];
  return `${lines.join('\n')}\n`;
}

function quote(path: string): string {
  return `"${path.replaceAll('\\', '\\\\').replaceAll('"', '\\"')}"`;
}

class RedisChild implements PrivateRedis {
  readonly socketPath: string;
  readonly exited: Promise<ChildExit>;
  readonly #child: ChildProcess;
  #spawnError: NodeJS.ErrnoException | null = null;
  #ended = false;

  constructor(child: ChildProcess, socketPath: string) {
    this.#child = child;
    this.socketPath = socketPath;
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => {
        this.#ended = true;
        resolve({ code, signal });
      });
      child.once('error', (error) => {
        this.#spawnError ??= error;
        this.#ended = true;
        resolve({ code: null, signal: null });
      });
    });
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async started(binary: string): Promise<void> {
    const end = performance.now() + START_TIMEOUT_MS;
    while (performance.now() < end) {
      if (this.#ended) throw await this.#failure(binary);
      if (await redisAnswers(this.socketPath)) return;
      await wait(PROBE_INTERVAL_MS);
    }
    await this.kill();
    throw new MeshError(
      'BUS_UNAVAILABLE',
      `${binary} did not answer within ${START_TIMEOUT_MS / 1_000} s on ${this.socketPath}`,
    );
  }

  async stop(): Promise<void> {
    if (this.#ended) return;
    this.#child.kill('SIGTERM');
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_TIMEOUT_MS);
    await this.exited;
    clearTimeout(timer);
  }

  async kill(): Promise<void> {
    if (this.#ended) return;
    this.#child.kill('SIGKILL');
    await this.exited;
  }

  async #failure(binary: string): Promise<MeshError> {
    const exit = await this.exited;
    if (this.#spawnError?.code === 'ENOENT') {
      return new MeshError(
        'BUS_UNAVAILABLE',
        `${binary} is not installed: install redis-server (Debian: apt-get install redis-server) or set REDIS_URL`,
        { cause: this.#spawnError },
      );
    }
    const why =
      this.#spawnError === null ? `exit ${exit.code ?? exit.signal}` : errorText(this.#spawnError);
    return new MeshError('BUS_UNAVAILABLE', `${binary} ended while starting: ${why}`);
  }
}

/** Whether a Redis answers on the socket; it need not let us in, an unauthenticated PING is refused. */
export function redisAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    const finish = (up: boolean): void => {
      socket.destroy();
      resolve(up);
    };
    socket.setTimeout(1_000, () => finish(false));
    // Refused or absent while it starts.
    socket.once('error', () => finish(false));
    socket.once('connect', () => socket.write('PING\r\n'));
    socket.once('data', (data) => finish(/^(\+PONG|-NOAUTH)/.test(data.toString())));
  });
}
