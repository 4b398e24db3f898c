/** Connects one command to the bus of a running mesh, as the user `cli`, which may read tables and request explanations. */
import { join } from 'node:path';
import type { Scope, TableName } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { createLogger } from '../../lib/log/logger.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import type { MeshPaths } from '../local-mesh/mesh-paths.ts';
import { warn } from './output.ts';

const REDIS_USER = 'cli';
/** The prefix of every local mesh. */
const KEY_PREFIX = 'weft';
/** Time limit for an answer of Redis, which runs on the same machine. */
const CONNECT_TIMEOUT_MS = 5_000;

/** Runs `work` with a connected bus and closes it. Throws BUS_UNAVAILABLE when Redis is away. */
export async function withMeshBus<T>(
  paths: MeshPaths,
  work: (bus: Bus) => Promise<T>,
  connectTimeoutMs = CONNECT_TIMEOUT_MS,
): Promise<T> {
  const notes = new BusNotes();
  const bus = connectBus(
    {
      endpoint: { kind: 'unix', path: paths.redisSocket },
      username: REDIS_USER,
      passwordFile: join(paths.redisSecretsDir, REDIS_USER),
      caFile: null,
      prefix: KEY_PREFIX,
    },
    {
      log: createLogger({ actor: REDIS_USER, level: 'warn' }, notes),
      clock: systemClock,
      metrics: new MetricRegistry(),
      name: REDIS_USER,
    },
  );
  try {
    if (!(await connected(bus, connectTimeoutMs))) {
      const why = notes.lastConnectionError;
      throw new MeshError(
        'BUS_UNAVAILABLE',
        `Redis does not answer on ${paths.redisSocket}${why === null ? '' : `: ${why}`}`,
      );
    }
    return await work(bus);
  } finally {
    await bus.close();
    for (const note of notes.others) warn(note);
  }
}

/** Reads all rows of a table; none when the table was never written. */
export function readTable(
  bus: Bus,
  table: TableName,
  scope: Scope,
): Promise<ReadonlyMap<string, Uint8Array>> {
  return bus.sharedWriter(table, scope).readAll();
}

async function connected(bus: Bus, timeoutMs: number): Promise<boolean> {
  const first = Promise.withResolvers<void>();
  const release = bus.onConnection((up) => up && first.resolve());
  const timer = systemClock.after(timeoutMs, first.resolve);
  if (!bus.connected) await first.promise;
  timer.cancel();
  release();
  return bus.connected;
}

/** Collects the log lines of the bus: a failed connection explains an error, other lines become warnings. */
class BusNotes {
  lastConnectionError: string | null = null;
  readonly others: string[] = [];

  write(line: string): void {
    const { message, error, ...facts } = JSON.parse(line) as LogLine;
    if (message === 'bus.connection-error') {
      this.lastConnectionError = error ?? null;
      return;
    }
    const { time: _time, level: _level, actor: _actor, ...rest } = facts;
    const shown = Object.keys(rest).length === 0 ? '' : ` ${JSON.stringify(rest)}`;
    this.others.push(`${message}${error === undefined ? '' : `: ${error}`}${shown}`);
  }
}

/** A line of the logger. */
interface LogLine {
  readonly message: string;
  readonly error?: string;
  readonly [fact: string]: unknown;
}
