/** Writes that must reach the API server in the end. */
import { Slots } from '../async/slots.ts';
import { Backoff } from '../clock/backoff.ts';
import type { Clock } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { CONCURRENT_WRITES, MAX_WRITE_ATTEMPTS, WRITE_BACKOFF } from './limits.ts';

/** Writes something by the content that is current at that moment. Its signal aborts when the queue is closed. */
export type Write = (signal: AbortSignal) => Promise<void>;

/** Collaborators of a {@link WriteQueue}. */
export interface WriteQueueDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'warn' | 'debug'>;
  readonly metrics?: WriteQueueMetrics;
}

/** Counts of writes; see {@link writeQueueMetrics}. */
export interface WriteQueueMetrics {
  written(): void;
  failed(code: string): void;
  dropped(): void;
}

/** Declares the metrics of write queues; `waiting` is read at a scrape. */
export function writeQueueMetrics(
  registry: MetricRegistry,
  waiting: () => number,
): WriteQueueMetrics {
  const outcomes = registry.counter(
    'weft_kubernetes_writes_total',
    'Writes to the API server by outcome; dropped ones were given up',
    ['outcome'],
  );
  registry.gauge('weft_kubernetes_writes_waiting', 'Writes that wait', [], (gauge) =>
    gauge.set(waiting()),
  );
  return {
    written: () => outcomes.inc({ outcome: 'written' }),
    failed: () => outcomes.inc({ outcome: 'failed' }),
    dropped: () => outcomes.inc({ outcome: 'dropped' }),
  };
}

/** Failures that time does not heal. */
const FINAL: ReadonlySet<string> = new Set(['KUBERNETES_INVALID', 'KUBERNETES_NOT_FOUND']);

/**
 * Runs the latest write of each key, a few keys at a time; a later one of the same key replaces the one that waits. A failed write
 * is tried again with growing delays, unless time cannot heal it (the object is gone, the API server finds it invalid).
 *
 * A key names an object of the API server, and one write waits for it: the objects bound the queue. More of them take longer, and
 * none is refused, because its owner may be told of an object only once.
 */
export class WriteQueue {
  readonly #deps: WriteQueueDeps;
  readonly #slots: Slots;
  readonly #waiting = new Map<string, Write>();
  readonly #running = new Map<string, Promise<void>>();
  readonly #closing = new AbortController();

  constructor(deps: WriteQueueDeps) {
    this.#deps = deps;
    this.#slots = new Slots(() => CONCURRENT_WRITES, deps.clock);
  }

  /** Number of keys that wait or are written. */
  get size(): number {
    return this.#running.size;
  }

  /** Offers a write. A closed queue drops it, like all that waited. */
  offer(key: string, write: Write): void {
    if (this.#closing.signal.aborted) return;
    this.#waiting.set(key, write);
    if (this.#running.has(key)) return;
    this.#running.set(key, this.#work(key));
  }

  /** Resolves when all that was offered is written or given up, or when `signal` aborts. Never rejects. */
  async settled(signal: AbortSignal): Promise<void> {
    const aborted = Promise.withResolvers<void>();
    const end = (): void => aborted.resolve();
    signal.addEventListener('abort', end, { once: true });
    while (!signal.aborted && this.#running.size > 0) {
      await Promise.race([aborted.promise, Promise.all(this.#running.values())]);
    }
    signal.removeEventListener('abort', end);
  }

  /** Drops what waits and stops what runs. */
  async close(): Promise<void> {
    this.#waiting.clear();
    this.#closing.abort(new MeshError('KUBERNETES_UNAVAILABLE', 'the queue of writes is closed'));
    await Promise.all(this.#running.values());
  }

  /** Never rejects. Leaves the set in the turn of its last look at what waits, so that no later offer is lost. */
  async #work(key: string): Promise<void> {
    try {
      await this.#writeAll(key);
    } finally {
      this.#running.delete(key);
    }
  }

  async #writeAll(key: string): Promise<void> {
    const backoff = new Backoff(WRITE_BACKOFF);
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const leave = await this.#slots.take(null);
      const write = this.#waiting.get(key);
      this.#waiting.delete(key);
      let failure: MeshError | null = null;
      try {
        if (write !== undefined && !signal.aborted) await write(signal);
      } catch (error) {
        failure = asMeshError(error, 'KUBERNETES_INVALID');
      } finally {
        leave();
      }
      if (write === undefined || signal.aborted) return;
      if (failure === null) {
        this.#deps.metrics?.written();
        backoff.reset();
        if (!this.#waiting.has(key)) return;
      } else if (!(await this.#again(key, write, failure, backoff))) {
        return;
      }
    }
  }

  /** Puts a failed write back unless a later one waits, and waits for its next turn. Returns false when nothing is left to do. */
  async #again(key: string, write: Write, failure: MeshError, backoff: Backoff): Promise<boolean> {
    const { clock, log, metrics } = this.#deps;
    metrics?.failed(failure.code);
    const problem = failure.message;
    if (FINAL.has(failure.code) || backoff.attempt + 1 >= MAX_WRITE_ATTEMPTS) {
      log.warn({ object: key, problem }, 'kubernetes.write-dropped');
      metrics?.dropped();
      backoff.reset();
      return this.#waiting.has(key);
    }
    log.debug({ object: key, problem }, 'kubernetes.write-failed');
    if (!this.#waiting.has(key)) this.#waiting.set(key, write);
    const { signal } = this.#closing;
    try {
      await clock.sleep(backoff.next(), signal);
      return true;
    } catch (error) {
      if (!signal.aborted) throw error;
      return false;
    }
  }
}
