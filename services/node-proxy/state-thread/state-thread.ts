import { MessageChannel } from 'node:worker_threads';
import type { MessagePort } from 'node:worker_threads';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';
import { DUMP_TIMEOUT_MS, PROFILE_TIMEOUT_MS } from '../limits.ts';
import type {
  DumpSection,
  FeedStep,
  FromStateThread,
  StateSettings,
  StateStats,
  StateTable,
  ToStateThread,
} from './protocol.ts';
import { callersThread, ownThread } from './state-host.ts';
import type { StateHost } from './state-host.ts';

/** Events of the state thread. */
export interface StateThreadEvents {
  /** The state is complete for the first time, and lookups are answered. */
  ready(): void;
  identities(identities: readonly string[]): void;
  /** Names to ask the ingester for. */
  want(names: readonly string[]): void;
  /** The thread died, so the process cannot route any more. */
  failed(error: MeshError): void;
}

interface Pending {
  readonly timer: Timer;
  resolve(answer: Answer): void;
  reject(error: MeshError): void;
}

type Answer = Extract<FromStateThread, { type: 'dump' | 'profile' }>;
type Question = Extract<ToStateThread, { type: 'dump.next' | 'profile' }>;

/** The main thread's side of the state thread. */
export class StateThread {
  /** True when the state has a thread of its own. */
  readonly own: boolean;
  readonly #host: StateHost;
  readonly #clock: Clock;
  readonly #events: StateThreadEvents;
  readonly #feeds = new Map<number, PromiseWithResolvers<void>>();
  readonly #pending = new Map<number, Pending>();
  #nextId = 1;
  #stats: StateStats | null = null;
  #closed = false;

  /** With `own` the state has a thread of its own, else it shares the caller's. */
  constructor(settings: StateSettings, own: boolean, clock: Clock, events: StateThreadEvents) {
    this.own = own;
    this.#clock = clock;
    this.#events = events;
    this.#host = (own ? ownThread : callersThread)(settings, {
      receive: (message) => this.#receive(message),
      lost: (why) => this.#lost(why),
    });
  }

  /** The last gauges; null before the first. */
  get stats(): StateStats | null {
    return this.#stats;
  }

  /** Returns a port to the state for the listener thread of this number. */
  connect(thread: number): MessagePort {
    const { port1, port2 } = new MessageChannel();
    this.#send({ type: 'connect', thread, port: port2 }, [port2]);
    return port1;
  }

  /** Hands over one step of a table; resolves when it is in force. The feeder waits for that, which is its backpressure. */
  async feed(table: StateTable, step: FeedStep): Promise<void> {
    if (this.#closed) return;
    const id = this.#newId();
    const settled = Promise.withResolvers<void>();
    this.#feeds.set(id, settled);
    this.#send({ type: 'feed', id, table, step }, 'rows' in step ? [step.rows.data.buffer] : []);
    await settled.promise;
  }

  /**
   * Reads a section for the config dump as the caller takes it: yields texts with some JSON objects each, and commas between
   * them. Throws BUS_TIMEOUT when the next text takes too long, STATE_UNAVAILABLE when the thread is gone.
   */
  async *dump(section: DumpSection): AsyncGenerator<string> {
    const id = this.#newId();
    if (!this.#closed) this.#send({ type: 'dump', id, section });
    try {
      for (;;) {
        const answer = await this.#ask(
          { type: 'dump.next', id },
          `dump of ${section}`,
          DUMP_TIMEOUT_MS,
        );
        if (answer.type !== 'dump' || answer.text === null) return;
        yield answer.text;
      }
    } finally {
      if (!this.#closed) this.#send({ type: 'dump.end', id });
    }
  }

  /** Takes a profile of the thread. Throws like {@link dump} and like the profiler. */
  async profile(command: ProfileCommand): Promise<ThreadProfile> {
    const takes = command.kind === 'cpu' ? command.durationMs : 0;
    const question = { type: 'profile', id: this.#newId(), command } as const;
    const answer = await this.#ask(question, 'profile', takes + PROFILE_TIMEOUT_MS);
    return present(answer.type === 'profile' ? answer.profile : null, 'a profile was asked for');
  }

  /** Changes the log level of the thread. */
  setLogLevel(level: string): void {
    this.#send({ type: 'log.level', level });
  }

  /** Lets a thread of its own collect its garbage; the caller's collects by itself. */
  releaseMemory(): void {
    if (this.own && !this.#closed) this.#send({ type: 'memory.release' });
  }

  /** Ends the thread. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#abandon(new MeshError('STATE_UNAVAILABLE', 'the process is stopping'));
    await this.#host.end();
  }

  #newId(): number {
    const id = this.#nextId;
    this.#nextId += 1;
    return id;
  }

  #ask(question: Question, what: string, timeoutMs: number): Promise<Answer> {
    if (this.#closed) {
      return Promise.reject(new MeshError('STATE_UNAVAILABLE', 'the state thread is gone'));
    }
    const { id } = question;
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const timer = this.#clock.after(timeoutMs, () => {
      this.#pending.delete(id);
      reject(
        new MeshError('BUS_TIMEOUT', `the state thread gave no ${what} after ${timeoutMs} ms`),
      );
    });
    this.#pending.set(id, { timer, resolve, reject });
    this.#send(question);
    return promise;
  }

  #send(message: ToStateThread, transfer: (MessagePort | ArrayBuffer)[] = []): void {
    this.#host.post(message, transfer);
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
      case 'profile':
        this.#settle(message.id)?.resolve(message);
        break;
      case 'failed':
        this.#settle(message.id)?.reject(MeshError.fromWire(message.error));
        break;
      case 'identities':
        this.#events.identities(message.identities);
        break;
      case 'want':
        this.#events.want(message.names);
        break;
      case 'stats':
        this.#stats = message.stats;
        break;
    }
  }

  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    pending?.timer.cancel();
    return pending;
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
    const ids = [...this.#pending.keys()];
    for (const id of ids) this.#settle(id)?.reject(error);
  }
}
