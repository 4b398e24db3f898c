import type { Job, Worker } from 'bullmq';
import { inTime } from '../async/time-limit.ts';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { NO_FIRST_COMMAND, loadConsumer } from './bullmq.ts';
import type { ConsumerParts } from './bullmq.ts';
import type { JobAttempt, JobDefinition, WorkConsumer } from './contract.ts';
import { openEnvelope } from './envelope.ts';
import {
  DEAD_LETTERS_MAX,
  JOB_BACKOFF_MAX_MS,
  JOB_LOCK_MS,
  JOB_STALLS_MAX,
  JOB_STALL_CHECK_MS,
} from './limits.ts';
import type { BusMetrics } from './metrics.ts';
import { whenReady } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** Wait of a worker's blocking read, and pause after a failed command: short, so that it is back soon after Redis is. */
const DRAIN_DELAY_SECONDS = 5;
const RETRY_PAUSE_MS = 1_000;

/** Longest wait for BullMQ to close; without Redis it would wait forever. */
const CLOSE_TIMEOUT_MS = 2_000;

const BACKOFF_JITTER = 0.2;

/** Dependencies of a consumer. The consumer owns the client. */
export interface ConsumerDeps {
  readonly client: RedisClient;
  readonly prefix: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: BusMetrics;
}

/** Runs jobs of one kind through BullMQ. A job may run twice: handlers are idempotent. */
export class RedisWorkConsumer<Body> implements WorkConsumer {
  readonly #definition: JobDefinition<Body>;
  readonly #deps: ConsumerDeps;
  readonly #handler: (body: Body, attempt: JobAttempt) => Promise<void>;
  readonly #stop = new AbortController();
  readonly #inHand = new Set<Promise<void>>();
  #worker: Worker | null = null;
  #draining = false;
  #closing: Promise<void> | null = null;

  constructor(
    definition: JobDefinition<Body>,
    deps: ConsumerDeps,
    concurrency: number,
    handler: (body: Body, attempt: JobAttempt) => Promise<void>,
  ) {
    this.#definition = definition;
    this.#deps = deps;
    this.#handler = handler;
    // An unreadable package is a broken installation and ends the actor.
    const start = async (): Promise<void> => {
      const parts = await loadConsumer();
      if (this.#draining || this.#stop.signal.aborted) return;
      this.#worker = this.#createWorker(parts, concurrency);
    };
    // Rejects only because the consumer is closed before Redis was ever there.
    void whenReady(deps.client, this.#stop.signal).then(start, () => undefined);
  }

  async drain(): Promise<void> {
    this.#draining = true;
    // Not awaited: with Redis away it could not tell that no job is in hand.
    this.#worker?.pause(true).catch((error: unknown) => {
      this.#deps.log.warn({ error: errorText(error) }, 'bus.consumer-not-paused');
    });
    while (this.#inHand.size > 0) await Promise.allSettled(this.#inHand);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#stop.abort(new Error('consumer closed'));
    const worker = this.#worker;
    if (worker !== null) {
      // Jobs in hand have run or are given up: their locks run out and other consumers take them.
      await inTime(this.#deps.clock, CLOSE_TIMEOUT_MS, worker.close(true));
    }
    this.#deps.client.disconnect();
  }

  #createWorker(parts: ConsumerParts, concurrency: number): Worker {
    const { client, log, metrics, prefix } = this.#deps;
    const { queue } = this.#definition;
    const worker = new parts.Worker(
      queue,
      async (job, _token, signal) => {
        const work = this.#process(parts, job, signal ?? this.#stop.signal);
        this.#inHand.add(work);
        try {
          await work;
        } finally {
          this.#inHand.delete(work);
        }
      },
      {
        connection: client,
        prefix,
        concurrency,
        ...NO_FIRST_COMMAND,
        drainDelay: DRAIN_DELAY_SECONDS,
        runRetryDelay: RETRY_PAUSE_MS,
        lockDuration: JOB_LOCK_MS,
        stalledInterval: JOB_STALL_CHECK_MS,
        maxStalledCount: JOB_STALLS_MAX,
        removeOnComplete: { count: 0 },
        removeOnFail: { count: DEAD_LETTERS_MAX },
        settings: { backoffStrategy: (attempt, _type, _error, job) => backoffDelay(attempt, job) },
      },
    );
    worker.on('completed', () => metrics.jobs.inc({ queue, outcome: 'completed' }));
    worker.on('stalled', () => metrics.jobs.inc({ queue, outcome: 'stalled' }));
    worker.on('failed', (job, error) => this.#failed(job, error));
    worker.on('error', (error) =>
      log.warn({ queue, error: errorText(error) }, 'bus.consumer-error'),
    );
    return worker;
  }

  #failed(job: Job | undefined, error: Error): void {
    const { log, metrics } = this.#deps;
    const { queue } = this.#definition;
    const dead = job === undefined || job.finishedOn !== undefined;
    metrics.jobs.inc({ queue, outcome: dead ? 'dead' : 'failed' });
    const facts = { queue, id: job?.id, attempt: job?.attemptsMade, error: errorText(error) };
    if (dead) log.error(facts, 'job.dead');
    else log.warn(facts, 'job.failed');
  }

  async #process(
    { UnrecoverableError }: ConsumerParts,
    job: Job,
    signal: AbortSignal,
  ): Promise<void> {
    const { log, metrics } = this.#deps;
    const id = job.id ?? '';
    let body: Body;
    try {
      ({ body } = openEnvelope(this.#definition, job.data));
    } catch (error) {
      metrics.parked.inc({ queue: this.#definition.queue });
      log.error({ queue: this.#definition.queue, id, error: errorText(error) }, 'job.parked');
      throw new UnrecoverableError(errorText(error));
    }
    const attempt = job.attemptsMade + 1;
    const lastAttempt = attempt >= (job.opts.attempts ?? this.#definition.attempts);
    try {
      await this.#handler(body, { id, attempt, lastAttempt, signal });
    } catch (error) {
      const final = error instanceof MeshError && error.policy.retry === 'never';
      if (final) throw new UnrecoverableError(`${error.code}: ${error.message}`);
      throw error;
    }
  }
}

/** Delay before the attempt after the given number of attempts, doubling up to the bound. */
function backoffDelay(attemptsMade: number, job: Pick<Job, 'opts'> | undefined): number {
  const { backoff } = job?.opts ?? {};
  const base = typeof backoff === 'object' ? (backoff.delay ?? 0) : (backoff ?? 0);
  const plain = Math.min(JOB_BACKOFF_MAX_MS, base * 2 ** Math.min(attemptsMade - 1, 30));
  return Math.round(plain * (1 + BACKOFF_JITTER * (2 * Math.random() - 1)));
}
