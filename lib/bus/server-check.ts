import type { Clock, Timer } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { ClusterClient } from './cluster-client.ts';
import { SERVER_CHECK_MS } from './limits.ts';
import { isLinked, onLink } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** The state that a server reports of itself. */
interface ServerState {
  /** The server's maxmemory-policy; empty when it does not report one. */
  readonly policy: string;
  readonly usedBytes: number;
  /** 0 without a limit. */
  readonly limitBytes: number;
  /** False when its append-only file cannot be written: then it refuses writes. */
  readonly persists: boolean;
}

/** Dependencies of the check. */
export interface ServerCheckDeps {
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
  /** Called once, when a server of the first look evicts. */
  readonly onEviction: (policy: string) => void;
}

/**
 * Looks at the settings and the health of Redis, of each server of a cluster, on every connection and from time to time. An
 * eviction policy would silently lose rows and jobs; full memory and a full disk refuse them. INFO reports this without the right
 * to read CONFIG. The check logs changes and exposes metrics.
 */
export class ServerCheck {
  readonly #deps: ServerCheckDeps;
  readonly #timer: Timer;
  #states: readonly ServerState[] = [];
  #told = '';
  #first = true;

  constructor(deps: ServerCheckDeps) {
    this.#deps = deps;
    const look = (): void => void this.look();
    onLink(deps.client, look);
    this.#timer = deps.clock.every(SERVER_CHECK_MS, look);
    const gauge = (name: string, help: string, value: () => number): void =>
      void deps.metrics.gauge(name, help, [], (metric) => metric.set(value()));
    gauge('weft_redis_evicts', '1 while the maxmemory-policy of Redis is not noeviction', () =>
      this.#states.some(evicts) ? 1 : 0,
    );
    gauge('weft_redis_persistence_failed', '1 while Redis cannot write its append-only file', () =>
      this.#states.every(({ persists }) => persists) ? 0 : 1,
    );
    gauge(
      'weft_redis_memory_used_ratio',
      'Memory of Redis in use, of its maxmemory; of the fullest server, 0 without a limit',
      () => Math.max(0, ...this.#states.map(fullness)),
    );
  }

  close(): void {
    this.#timer.cancel();
  }

  /** Looks once; without Redis the last findings stay. */
  async look(): Promise<void> {
    const { client, log, onEviction } = this.#deps;
    if (!isLinked(client)) return;
    try {
      this.#states = await readStates(client);
    } catch (error) {
      log.debug({ error: errorText(error) }, 'bus.server-check');
      return;
    }
    const policy = this.#states.find(evicts)?.policy;
    const failed = this.#states.some(({ persists }) => !persists);
    const found = `${policy ?? ''} ${failed}`;
    if (found !== this.#told) {
      if (policy !== undefined) log.error({ policy }, 'redis.eviction-policy-must-be-noeviction');
      if (failed) log.error({}, 'redis.append-only-file-not-written');
      if (this.#told !== '' && policy === undefined && !failed) log.info({}, 'redis.well-again');
      this.#told = policy === undefined && !failed ? '' : found;
    }
    if (policy !== undefined && this.#first) onEviction(policy);
    this.#first = false;
  }
}

function evicts({ policy }: ServerState): boolean {
  return policy !== '' && policy !== 'noeviction';
}

function fullness({ usedBytes, limitBytes }: ServerState): number {
  return limitBytes === 0 ? 0 : usedBytes / limitBytes;
}

async function readStates(client: RedisClient): Promise<readonly ServerState[]> {
  if (!(client instanceof ClusterClient)) return [readState(await client.info())];
  // A replica may be promoted, so its settings count. One that is away does not count.
  const answers = await Promise.allSettled(client.nodes().map((server) => server.info()));
  const states = answers.flatMap((answer) =>
    answer.status === 'fulfilled' ? [readState(answer.value)] : [],
  );
  if (states.length === 0) throw new Error('no server of the cluster answers');
  return states;
}

function readState(info: string): ServerState {
  const field = (name: string): string => new RegExp(`^${name}:(\\S+)`, 'm').exec(info)?.[1] ?? '';
  return {
    policy: field('maxmemory_policy'),
    usedBytes: Number(field('used_memory')),
    limitBytes: Number(field('maxmemory')),
    persists: field('aof_last_write_status') !== 'err',
  };
}
