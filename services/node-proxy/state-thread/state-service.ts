import type { MessagePort } from 'node:worker_threads';
import { collectFitting } from '../../../lib/actor/collector.ts';
import { systemClock } from '../../../lib/clock/clock.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import { createLogger, setLogFilter } from '../../../lib/log/logger.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { ThreadProfiler } from '../../../lib/profile/thread-profiler.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import { decodeAuthorization } from '../../../lib/xds/resources/authorization.ts';
import type { StateRequest, StateResponse } from '../../../workers/listener/protocol/state.ts';
import type { FromStateThread, StateSettings, StateStats, ToStateThread } from './protocol.ts';
import { StateEngine } from './state-engine.ts';

/** Time between two reports of changed gauges. */
const STATS_INTERVAL_MS = 1_000;

/**
 * Holds the mesh state of the process: obeys messages of `main`, and answers on the ports that come with them, until a message
 * stops it. Calls `fail` when the state is wrong from then on.
 */
export class StateService {
  readonly #main: MessagePort;
  readonly #fail: (error: unknown) => void;
  readonly #log: Logger;
  readonly #engine: StateEngine;
  readonly #ports = new Map<number, MessagePort>();
  /** Dumps in progress; the main thread requests part after part, as its reader takes them. */
  readonly #dumps = new Map<number, AsyncGenerator<string>>();
  readonly #profiler = new ThreadProfiler();
  #statsTimer: NodeJS.Timeout | null = null;
  #reportedStats: StateStats | null = null;
  #reportedReady = false;
  /** Steps of all tables are applied one after another, because slices of two steps must not interleave. */
  #feeding: Promise<void> = Promise.resolve();

  constructor(settings: StateSettings, main: MessagePort, fail: (error: unknown) => void) {
    this.#main = main;
    this.#fail = fail;
    this.#log = createLogger({
      actor: 'node-proxy',
      node: settings.node,
      level: settings.logLevel,
      format: settings.logFormat,
    });
    this.#engine = new StateEngine(settings, {
      clock: systemClock,
      log: this.#log,
      decodeAddress,
      decodeAuthorization,
      identitiesChanged: (identities) => this.#tell({ type: 'identities', identities }),
      want: (names) => this.#tell({ type: 'want', names }),
    });
  }

  /** Begins to serve. Call it once. */
  start(): void {
    this.#main.on('message', (message: ToStateThread) => this.#obey(message));
    this.#statsTimer = setInterval(() => this.#tellStats(), STATS_INTERVAL_MS);
  }

  #obey(message: ToStateThread): void {
    switch (message.type) {
      case 'connect':
        this.#connect(message.thread, message.port);
        break;
      case 'feed':
        this.#feeding = this.#feeding
          .then(() => this.#feed(message))
          .catch((error: unknown) => {
            this.#stop();
            this.#fail(error);
          });
        break;
      case 'dump':
        this.#dumps.set(message.id, this.#engine.dump(message.section));
        break;
      case 'dump.next':
        this.#answer(message.id, this.#nextPart(message.id), 'the state cannot be dumped');
        break;
      case 'dump.end':
        this.#dumps.delete(message.id);
        break;
      case 'profile':
        this.#answer(
          message.id,
          this.#profiler
            .run(message.command)
            .then((profile) => this.#tell({ type: 'profile', id: message.id, profile })),
          'the state thread cannot be profiled',
        );
        break;
      case 'log.level':
        setLogFilter(this.#log, message.level);
        break;
      case 'memory.release':
        collectFitting();
        break;
      case 'stop':
        this.#stop();
        break;
    }
  }

  #tell(message: FromStateThread): void {
    this.#main.postMessage(message);
  }

  #tellStats(): void {
    const stats = this.#engine.stats();
    if (JSON.stringify(stats) === JSON.stringify(this.#reportedStats)) return;
    this.#reportedStats = stats;
    this.#tell({ type: 'stats', stats });
  }

  #connect(thread: number, port: MessagePort): void {
    this.#ports.get(thread)?.close();
    this.#ports.set(thread, port);
    const send = (message: StateResponse): void => port.postMessage(message);
    this.#engine.connect(thread, send);
    port.on('message', (request: StateRequest) => this.#engine.request(thread, request, send));
    port.on('close', () => {
      if (this.#ports.get(thread) !== port) return;
      this.#ports.delete(thread);
      this.#engine.disconnect(thread);
    });
  }

  async #feed(message: Extract<ToStateThread, { type: 'feed' }>): Promise<void> {
    await this.#engine.feed(message.table, message.step);
    if (this.#engine.ready && !this.#reportedReady) {
      this.#reportedReady = true;
      this.#tell({ type: 'ready' });
    }
    this.#tell({ type: 'fed', id: message.id });
  }

  async #nextPart(id: number): Promise<void> {
    const part = await this.#dumps.get(id)?.next();
    if (part === undefined) return;
    if (part.done === true) this.#dumps.delete(id);
    this.#tell({ type: 'dump', id, text: part.done === true ? null : part.value });
  }

  /** Answers the question with a failure when `work` fails. */
  #answer(id: number, work: Promise<void>, what: string): void {
    work.catch((error: unknown) => {
      this.#dumps.delete(id);
      const failure = asMeshError(error, 'STATE_INVALID', what).toWire();
      this.#tell({ type: 'failed', id, error: failure });
    });
  }

  #stop(): void {
    if (this.#statsTimer !== null) clearInterval(this.#statsTimer);
    this.#engine.close();
    for (const port of this.#ports.values()) port.close();
    this.#main.close();
  }
}
