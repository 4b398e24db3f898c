import { MessageChannel, Worker } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { DUMP_TIMEOUT_MS } from '../limits.ts';
import type {
  DumpSection,
  FeedStep,
  FromStateThread,
  StateSettings,
  StateStats,
  StateTable,
  ToStateThread,
} from './protocol.ts';

/** Whom the state thread tells. */
export interface StateThreadEvents {
  /** The state is complete for the first time: lookups are answered. */
  ready(): void;
  identities(identities: readonly string[]): void;
  /** The thread died: the process cannot route any more. */
  failed(error: MeshError): void;
}

interface PendingDump {
  readonly objects: unknown[];
  readonly timer: Timer;
  resolve(objects: readonly unknown[]): void;
  reject(error: MeshError): void;
}

/** The state thread as the main thread sees it. */
export class StateThread {
  readonly #worker: Worker;
  readonly #clock: Clock;
  readonly #events: StateThreadEvents;
  readonly #feeds = new Map<number, PromiseWithResolvers<void>>();
  readonly #dumps = new Map<number, PendingDump>();
  #nextId = 1;
  #stats: StateStats | null = null;
  #closed = false;

  constructor(settings: StateSettings, clock: Clock, events: StateThreadEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#worker = new Worker(new URL('./state.worker.ts', import.meta.url), {
      workerData: settings,
      name: 'state',
    });
    this.#worker.on('message', (message: FromStateThread) => this.#receive(message));
    this.#worker.on('error', (error) => this.#lost(errorText(error)));
    this.#worker.on('exit', (code) => this.#lost(`exit code ${code}`));
  }

  /** The gauges told last; null before the first. */
  get stats(): StateStats | null {
    return this.#stats;
  }

  /** A port to the state for the listener thread of this number, to be handed to it. */
  connect(thread: number): MessagePort {
    const { port1, port2 } = new MessageChannel();
    this.#send({ type: 'connect', thread, port: port2 }, [port2]);
    return port1;
  }

  /** Hands over one step of a table; resolves when it is in force, which is the feeder's backpressure. */
  async feed(table: StateTable, step: FeedStep): Promise<void> {
    if (this.#closed) return;
    const id = this.#nextId;
    this.#nextId += 1;
    const settled = Promise.withResolvers<void>();
    this.#feeds.set(id, settled);
    this.#send({ type: 'feed', id, table, step }, 'rows' in step ? [step.rows.data.buffer] : []);
    await settled.promise;
  }

  /** The objects of a section as the config dump shows them. BUS_TIMEOUT when that takes too long, STATE_UNAVAILABLE without a thread. */
  dump(section: DumpSection): Promise<readonly unknown[]> {
    if (this.#closed) {
      return Promise.reject(new MeshError('STATE_UNAVAILABLE', 'the state thread is gone'));
    }
    const id = this.#nextId;
    this.#nextId += 1;
    const { promise, resolve, reject } = Promise.withResolvers<readonly unknown[]>();
    const timer = this.#clock.after(DUMP_TIMEOUT_MS, () => {
      this.#dumps.delete(id);
      reject(new MeshError('BUS_TIMEOUT', `no dump of ${section} after ${DUMP_TIMEOUT_MS} ms`));
    });
    this.#dumps.set(id, { objects: [], timer, resolve, reject });
    this.#send({ type: 'dump', id, section });
    return promise;
  }

  /** Changes the log level of the thread. */
  setLogLevel(level: string): void {
    this.#send({ type: 'log.level', level });
  }

  /** Ends the thread. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#abandon(new MeshError('STATE_UNAVAILABLE', 'the process is stopping'));
    await this.#worker.terminate();
  }

  #send(message: ToStateThread, transfer: (MessagePort | ArrayBuffer)[] = []): void {
    this.#worker.postMessage(message, transfer);
  }

  #receive(message: FromStateThread): void {
    switch (message.type) {
      case 'ready':
        this.#events.ready();
        break;
      case 'fed':
        this.#feeds.get(message.id)?.resolve();
        this.#feeds.delete(message.id);
        break;
      case 'dump':
        this.#receiveDump(message);
        break;
      case 'dump.failed':
        this.#failDump(message.id, MeshError.fromWire(message.error));
        break;
      case 'identities':
        this.#events.identities(message.identities);
        break;
      case 'stats':
        this.#stats = message.stats;
        break;
    }
  }

  #receiveDump(message: Extract<FromStateThread, { type: 'dump' }>): void {
    const dump = this.#dumps.get(message.id);
    if (dump === undefined) return;
    for (const object of message.objects) dump.objects.push(object);
    if (!message.done) return;
    this.#dumps.delete(message.id);
    dump.timer.cancel();
    dump.resolve(dump.objects);
  }

  #failDump(id: number, error: MeshError): void {
    const dump = this.#dumps.get(id);
    this.#dumps.delete(id);
    dump?.timer.cancel();
    dump?.reject(error);
  }

  #lost(why: string): void {
    if (this.#closed) return;
    this.#closed = true;
    const error = new MeshError('ACTOR_FAILED', `the state thread died: ${why}`);
    this.#abandon(error);
    this.#events.failed(error);
  }

  #abandon(error: MeshError): void {
    for (const feed of this.#feeds.values()) feed.resolve();
    this.#feeds.clear();
    for (const dump of this.#dumps.values()) {
      dump.timer.cancel();
      dump.reject(error);
    }
    this.#dumps.clear();
  }
}
