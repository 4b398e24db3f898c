import type { Queue } from 'bullmq';
import type { Clock } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { NO_FIRST_COMMAND, loadQueue } from './bullmq.ts';
import type { JobDefinition } from './contract.ts';
import { sealEnvelope } from './envelope.ts';
import { DEAD_LETTERS_MAX, QUEUE_EVENTS_MAX } from './limits.ts';
import { asBusError, isLinked } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

/** BullMQ's answer for a job that is not there (ErrorCode.JobNotExist). */
const JOB_NOT_EXIST = -1;

/** Backoff type of every job; the consumer computes the delay. */
const JOB_BACKOFF_TYPE = 'weft';

/** How a job is added: lower `priority` numbers go first, 1 is the most urgent. */
export interface AddOptions {
  readonly priority?: number;
  readonly delayMs?: number;
}

/** Dependencies of a queue. The client is shared; the queue does not close it. */
export interface QueueDeps {
  readonly client: RedisClient;
  /** BullMQ prefix: the scope's. */
  readonly prefix: string;
  readonly clock: Clock;
  /** Name of the sending process. */
  readonly from: string;
  /** Jobs that may wait; the next one is refused with BUS_UNAVAILABLE. */
  readonly waitingMax: number;
  onError(error: Error): void;
}

/** Adds jobs of one kind through BullMQ. Never waits for Redis to come back. */
export class WorkQueue<Body> {
  readonly #definition: JobDefinition<Body>;
  readonly #deps: QueueDeps;
  #queue: Promise<Queue> | null = null;

  constructor(definition: JobDefinition<Body>, deps: QueueDeps) {
    this.#definition = definition;
    this.#deps = deps;
  }

  /**
   * Adds the job unless one with this id waits or runs; replaces a dead one with this id. Throws BUS_MESSAGE for a body or an id
   * that is not valid, BUS_UNAVAILABLE when Redis is away or the queue is full.
   */
  async add(id: string, body: Body, options: AddOptions = {}): Promise<void> {
    // A dead letter of the same id would swallow the new job.
    await this.#put(id, body, options, ['failed']);
  }

  /** Adds the job as {@link add} does, also in place of one with this id that waits for its next attempt: it has all attempts anew. */
  async restart(id: string, body: Body, options: AddOptions = {}): Promise<void> {
    await this.#put(id, body, options, ['failed', 'delayed']);
  }

  async #put(
    id: string,
    body: Body,
    options: AddOptions,
    replaced: readonly string[],
  ): Promise<void> {
    const { name } = this.#definition;
    // BullMQ builds keys from ids.
    if (id === '' || id.includes(':')) {
      throw new MeshError(
        'BUS_MESSAGE',
        `${name}: job id ${JSON.stringify(id)} must not be empty or hold ':'`,
      );
    }
    const parsed = this.#definition.body.safeParse(body);
    if (!parsed.success) {
      throw new MeshError('BUS_MESSAGE', `${name}: ${parsed.error.message}`, {
        cause: parsed.error,
      });
    }
    const message = { id, at: this.#deps.clock.now(), from: this.#deps.from, body };
    await this.#run(`add ${name}`, async (queue) => {
      await this.#refuseWhenFull(queue);
      if (replaced.includes(await queue.getJobState(id))) await queue.remove(id);
      await queue.add(name, sealEnvelope(this.#definition, message), {
        jobId: id,
        ...(options.priority === undefined ? {} : { priority: options.priority }),
        ...(options.delayMs === undefined ? {} : { delay: options.delayMs }),
      });
    });
  }

  /** Raises or lowers the urgency of a waiting job; no effect when it runs or is gone. */
  setPriority(id: string, priority: number): Promise<void> {
    return this.#run(`prioritise ${this.#definition.name}`, async (queue) => {
      const job = await queue.getJob(id);
      if (job === undefined || job.priority === priority) return;
      try {
        await job.changePriority({ priority });
      } catch (error) {
        // It was taken or finished in between.
        if ((error as { code?: unknown }).code !== JOB_NOT_EXIST) throw error;
      }
    });
  }

  remove(id: string): Promise<void> {
    return this.#run(`remove ${this.#definition.name}`, async (queue) => {
      await queue.remove(id);
    });
  }

  async close(): Promise<void> {
    // A queue that could not be opened is not there; the caller that opened it got the error.
    const queue = await this.#queue?.catch(() => null);
    await queue?.close();
  }

  async #run(what: string, work: (queue: Queue) => Promise<void>): Promise<void> {
    if (!isLinked(this.#deps.client)) {
      throw new MeshError('BUS_UNAVAILABLE', `cannot ${what}: Redis is away`);
    }
    try {
      await work(await (this.#queue ??= this.#open()));
    } catch (error) {
      throw asBusError(error, `cannot ${what}`);
    }
  }

  async #refuseWhenFull(queue: Queue): Promise<void> {
    const waiting = await queue.getJobCountByTypes('wait', 'prioritized', 'delayed');
    if (waiting < this.#deps.waitingMax) return;
    throw new MeshError('BUS_UNAVAILABLE', `queue ${queue.name} is full`, { detail: { waiting } });
  }

  async #open(): Promise<Queue> {
    const QueueClass = await loadQueue().catch((error: unknown) => {
      // The next caller tries again.
      this.#queue = null;
      throw error;
    });
    const { attempts, backoffMs, queue: name } = this.#definition;
    const queue = new QueueClass(name, {
      connection: this.#deps.client,
      prefix: this.#deps.prefix,
      skipWaitingForReady: true,
      ...NO_FIRST_COMMAND,
      streams: { events: { maxLen: QUEUE_EVENTS_MAX } },
      defaultJobOptions: {
        attempts,
        backoff: { type: JOB_BACKOFF_TYPE, delay: backoffMs },
        // A finished job must not swallow a new one with its id.
        removeOnComplete: true,
        removeOnFail: { count: DEAD_LETTERS_MAX },
        stackTraceLimit: 1,
      },
    });
    queue.on('error', (error) => this.#deps.onError(error));
    return queue;
  }
}
