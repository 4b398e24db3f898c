import type * as z from 'zod';
import { inTime } from '../async/time-limit.ts';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import type { BusConfig } from './config.ts';
import type {
  JobAttempt,
  JobDefinition,
  Presence,
  QueueCounts,
  Scope,
  TableHandler,
  TableName,
  WorkConsumer,
} from './contract.ts';
import { leaseKey, presenceKey, resultKey, scopePrefix, tableKeys, wantedKey } from './keys.ts';
import { Lease } from './lease.ts';
import type { LeaseTimes } from './lease.ts';
import { JOBS_WAITING_MAX } from './limits.ts';
import { MalformedReport } from './malformed.ts';
import { createBusMetrics } from './metrics.ts';
import type { BusMetrics } from './metrics.ts';
import { RedisPresence } from './presence.ts';
import { readQueueCounts } from './queue-counts.ts';
import { createClient, onLink } from './redis-client.ts';
import type { ConnectionPurpose, RedisClient } from './redis-client.ts';
import { HintChannels, ResultBoard } from './result-board.ts';
import { ServerCheck } from './server-check.ts';
import { TableReader } from './table-reader.ts';
import { TableWriter } from './table-writer.ts';
import { RedisWorkConsumer } from './work-consumer.ts';
import { WantedReader, addWanted } from './wanted-stream.ts';
import { WorkQueue } from './work-queue.ts';

/** Longest time for parts to close with Redis: to give back a lease, to release a job's lock. */
const CLOSE_TIMEOUT_MS = 2_000;

/** Dependencies of the bus of a process. */
export interface BusDeps {
  readonly log: Logger;
  readonly clock: Clock;
  readonly metrics: MetricRegistry;
  /** Name of this process in connection names and message envelopes: the actor, with its node where it has one. */
  readonly name: string;
  /** Watches readers, so that a failed handler fails the actor. Without it such a failure is an unhandled rejection. */
  readonly supervise?: (name: string, work: Promise<unknown>) => void;
  /**
   * Tolerates a Redis that evicts keys and only reports it. Otherwise an actor that meets one when it starts fails with
   * CONFIG_INVALID.
   */
  readonly toleratesEviction?: boolean;
}

/**
 * The bus over Redis. Returns at once; parts made from it work as soon as Redis answers, and again whenever it comes back.
 * Throws CONFIG_INVALID when the password or CA file cannot be read. One per actor; the owner closes it.
 */
export function connectBus(config: BusConfig, deps: BusDeps): Bus {
  return new Bus(config, deps);
}

/** Something the bus made and closes with itself. */
interface Closable {
  close(): Promise<void>;
}

/**
 * The connections of one process to Redis, and the parts that use them: tables, leases, queues, results, presence lists.
 * Parts work as soon as Redis answers, and again whenever it comes back.
 */
export class Bus {
  readonly #config: BusConfig;
  readonly #deps: BusDeps;
  readonly #commands: RedisClient;
  readonly #metrics: BusMetrics;
  readonly #check: ServerCheck;
  readonly #listeners = new Set<(connected: boolean) => void>();
  readonly #parts = new Set<Closable>();
  #producer: RedisClient | null = null;
  #subscriptions: { readonly client: RedisClient; readonly hints: HintChannels } | null = null;
  #connected = false;
  #closing: Promise<void> | null = null;

  constructor(config: BusConfig, deps: BusDeps) {
    this.#config = config;
    this.#deps = deps;
    this.#metrics = createBusMetrics(deps.metrics, () => this.#connected);
    this.#commands = this.#client('commands');
    onLink(
      this.#commands,
      () => this.#setConnected(true),
      () => this.#setConnected(false),
    );
    const { clock, log, metrics } = deps;
    this.#check = new ServerCheck({
      client: this.#commands,
      clock,
      log,
      metrics,
      // Only the first look refuses: to end a serving actor would lose more than the eviction.
      onEviction: (policy) => {
        if (deps.toleratesEviction !== true) this.#refuse(policy);
      },
    });
  }

  /** False while Redis is away. */
  get connected(): boolean {
    return this.#connected;
  }

  /** Calls `listener` on every change of {@link connected}; the result ends that. */
  onConnection(listener: (connected: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Asks for the lease until it is closed. Without `times` it lasts eight seconds. */
  lease(name: string, scope: Scope, times?: LeaseTimes): Lease {
    const key = leaseKey(this.#config.prefix, name, scope);
    const { clock, log } = this.#deps;
    const lease = new Lease(name, key, {
      commands: this.#commands,
      clock,
      log,
      metrics: this.#metrics,
      ...(times === undefined ? {} : { times }),
    });
    return this.#own(lease);
  }

  /** Follows the table until the reader is closed. */
  reader(table: TableName, scope: Scope, handler: TableHandler): TableReader {
    const { clock, log } = this.#deps;
    const reader: TableReader = new TableReader(
      {
        table,
        keys: tableKeys(this.#config.prefix, table, scope),
        client: this.#client('blocking', table),
        clock,
        log,
        metrics: this.#metrics,
        malformed: new MalformedReport(table, log, this.#metrics),
        onClose: () => this.#parts.delete(reader),
      },
      handler,
    );
    this.#deps.supervise?.(`reader of ${table}`, reader.finished);
    return this.#own(reader);
  }

  /** A writer that writes only while the lease is held. */
  writer(table: TableName, scope: Scope, lease: Lease): TableWriter {
    return this.#tableWriter(table, scope, lease);
  }

  /** A writer of rows that are named by their contents, so that any replica writes them the same way (programs). */
  sharedWriter(table: TableName, scope: Scope): TableWriter {
    return this.#tableWriter(table, scope, null);
  }

  /** Adds jobs of one kind. */
  queue<Body>(definition: JobDefinition<Body>, scope: Scope): WorkQueue<Body> {
    this.#producer ??= this.#client('producer');
    const { clock, log, name } = this.#deps;
    const queue = new WorkQueue(definition, {
      client: this.#producer,
      prefix: scopePrefix(this.#config.prefix, scope),
      clock,
      from: name,
      waitingMax: JOBS_WAITING_MAX,
      onError: (error) =>
        log.warn({ queue: definition.queue, error: errorText(error) }, 'bus.queue-error'),
    });
    return this.#own(queue);
  }

  /** Takes jobs of one kind; several consumers of a queue compete. A job may run twice: handlers are idempotent. */
  consume<Body>(
    definition: JobDefinition<Body>,
    scope: Scope,
    options: { concurrency: number },
    handler: (body: Body, attempt: JobAttempt) => Promise<void>,
  ): WorkConsumer {
    const deps = {
      client: this.#client('consumer', definition.queue),
      prefix: scopePrefix(this.#config.prefix, scope),
      clock: this.#deps.clock,
      log: this.#deps.log,
      metrics: this.#metrics,
    };
    return this.#own(new RedisWorkConsumer(definition, deps, options.concurrency, handler));
  }

  /** Short-lived results of jobs. */
  results<Body>(name: string, scope: Scope, body: z.ZodType<Body>): ResultBoard<Body> {
    const { clock, log } = this.#deps;
    return new ResultBoard({
      name,
      body,
      keyOf: (id) => resultKey(this.#config.prefix, name, scope, id),
      commands: this.#commands,
      hints: this.#hintChannels(),
      clock,
      log,
    });
  }

  /** A list of members that are there. */
  presence<Body>(name: string, scope: Scope, body: z.ZodType<Body>): Presence<Body> {
    const { clock, log } = this.#deps;
    return new RedisPresence({
      name,
      body,
      key: presenceKey(this.#config.prefix, name, scope),
      commands: this.#commands,
      clock,
      log,
    });
  }

  /** Asks the ingester for Address resources by their names. Rejects with BUS_UNAVAILABLE when Redis is away. */
  want(names: readonly string[]): Promise<void> {
    return addWanted(this.#commands, wantedKey(this.#config.prefix), names);
  }

  /** Follows the names that node-proxies ask for until the result is closed. */
  followWanted(take: (names: readonly string[]) => void): { close(): Promise<void> } {
    const { clock, log } = this.#deps;
    const client = this.#client('blocking', 'wanted');
    const key = wantedKey(this.#config.prefix);
    const reader = new WantedReader({ client, key, clock, log, take });
    this.#deps.supervise?.('reader of wanted names', reader.finished);
    const part: Closable = {
      close: () => {
        this.#parts.delete(part);
        return reader.close();
      },
    };
    return this.#own(part);
  }

  /** Depths of the scopes' queues. Rejects with BUS_UNAVAILABLE when Redis is away. */
  queueCounts(scopes: readonly Scope[]): Promise<readonly QueueCounts[]> {
    return readQueueCounts(this.#commands, this.#config.prefix, scopes);
  }

  /** Closes all parts and the connections. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#check.close();
    const closed = Promise.all([...this.#parts].map((part) => part.close()));
    // A Redis that hangs must not hold the end. Closed connections fail the commands that still wait for it.
    await inTime(this.#deps.clock, CLOSE_TIMEOUT_MS, closed);
    this.#producer?.disconnect();
    this.#subscriptions?.client.disconnect();
    this.#commands.disconnect();
    this.#setConnected(false);
    await closed;
  }

  #tableWriter(table: TableName, scope: Scope, lease: Lease | null): TableWriter {
    return new TableWriter({
      table,
      keys: tableKeys(this.#config.prefix, table, scope),
      lease,
      commands: this.#commands,
      malformed: new MalformedReport(table, this.#deps.log, this.#metrics),
    });
  }

  #hintChannels(): HintChannels {
    if (this.#subscriptions === null) {
      const client = this.#client('subscriptions');
      this.#subscriptions = { client, hints: new HintChannels(client, this.#deps.log) };
    }
    return this.#subscriptions.hints;
  }

  #client(purpose: ConnectionPurpose, part?: string): RedisClient {
    const name = part === undefined ? this.#deps.name : `${this.#deps.name}:${part}`;
    return createClient(this.#config, purpose, name, this.#deps.log);
  }

  #own<Part extends Closable>(part: Part): Part {
    this.#parts.add(part);
    return part;
  }

  #setConnected(connected: boolean): void {
    if (connected === this.#connected) return;
    this.#connected = connected;
    this.#deps.log.info({ connected }, 'bus.connection');
    for (const listener of this.#listeners) listener(connected);
  }

  #refuse(policy: string): void {
    const error = new MeshError(
      'CONFIG_INVALID',
      `Redis evicts keys (maxmemory-policy ${policy}), which loses state and jobs: set it to noeviction`,
    );
    this.#deps.supervise?.('redis', Promise.reject(error));
  }
}
