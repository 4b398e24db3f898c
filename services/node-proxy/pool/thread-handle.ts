import type { EventLoopUtilization } from 'node:perf_hooks';
import { MessageChannel } from 'node:worker_threads';
import type { MessagePort, Worker } from 'node:worker_threads';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { present } from '../../../lib/errors/assert.ts';
import type { ExportDrops, ExportedConnection } from '../../../lib/otlp/model.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import { SeriesReader } from '../../../lib/metrics/series-memory.ts';
import type { SeriesMessage } from '../../../lib/metrics/series-memory.ts';
import type { ProfileCommand, ThreadProfile } from '../../../lib/profile/thread-profiler.ts';
import type { ConnectionRecord } from '../../../workers/listener/protocol/connections.ts';
import type {
  ControlFromThread,
  ControlToThread,
  PodActivity,
} from '../../../workers/listener/protocol/control.ts';
import { PROFILE_TIMEOUT_MS, REPORT_TIMEOUT_MS } from '../limits.ts';
import type { PlacedPod } from './placed-pod.ts';
import type { ThreadLoad } from './placement.ts';

/** Requests of a thread. */
export interface ThreadEvents {
  /** A connection of the thread waits for a certificate of the identity. */
  certificateNeeded(thread: ThreadHandle, identity: string): void;
}

interface Pending {
  timer: Timer;
  readonly what: string;
  readonly timeoutMs: number;
  /** Parts that came so far. */
  readonly connections: ConnectionRecord[];
  readonly exports: ExportedConnection[];
  resolve(answer: Answer): void;
  reject(error: MeshError): void;
}

type Answer = Extract<ControlFromThread, { type: 'report' | 'profile' }>;

/** A question to a thread, without its number. */
type Question =
  | Omit<Extract<ControlToThread, { type: 'report' }>, 'id'>
  | Omit<Extract<ControlToThread, { type: 'profile' }>, 'id'>;

/** The main thread's side of a listener thread: its control port, its pods, its load. */
export class ThreadHandle {
  readonly number: number;
  readonly worker: Worker;
  /** Pods placed on the thread whose task has not ended. */
  readonly pods = new Map<string, PlacedPod>();
  /** Counters and gauges of the thread, which stay when it dies. */
  readonly series = new SeriesReader();
  /** The thread's end of the control channel. */
  readonly farControl: MessagePort;
  readonly #control: MessagePort;
  readonly #clock: Clock;
  readonly #events: ThreadEvents;
  readonly #reports = new Map<number, Pending>();
  /** Connections for export that came after the question had timed out; at most as many as a thread keeps. */
  readonly #lateExports: ExportedConnection[] = [];
  #nextReport = 1;
  #lastUtilisation: EventLoopUtilization;
  #alive = true;

  constructor(number: number, worker: Worker, clock: Clock, events: ThreadEvents) {
    this.number = number;
    this.worker = worker;
    this.#clock = clock;
    this.#events = events;
    this.#lastUtilisation = worker.performance.eventLoopUtilization();
    const { port1, port2 } = new MessageChannel();
    this.#control = port1;
    this.farControl = port2;
    port1.on('message', (message: ControlFromThread) => this.#receive(message));
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Returns the load of the thread since the last call. */
  load(): ThreadLoad {
    const now = this.worker.performance.eventLoopUtilization();
    const { utilization } = this.worker.performance.eventLoopUtilization(
      now,
      this.#lastUtilisation,
    );
    this.#lastUtilisation = now;
    return { thread: this.number, pods: this.pods.size, utilisation: utilization };
  }

  /** Sends a message; has no effect when the thread is gone. `transfer` lists the ports in the message. */
  send(message: ControlToThread, transfer: readonly MessagePort[] = []): void {
    if (this.#alive) this.#control.postMessage(message, [...transfer]);
  }

  /**
   * Returns the live connections of its pods, or with `recent` those that ended lately. Throws BUS_TIMEOUT when the thread does
   * not answer, ACTOR_FAILED when it died.
   */
  async connections(
    what: 'connections' | 'recent' = 'connections',
    withLines = false,
  ): Promise<readonly ConnectionRecord[]> {
    const report = await this.#ask({ type: 'report', what, withLines }, what);
    return 'connections' in report ? report.connections : [];
  }

  /** Makes the thread update its {@link series}. Throws like {@link connections}. */
  async refresh(): Promise<void> {
    await this.#ask({ type: 'report', what: 'metrics' }, 'metrics');
  }

  /** Takes a profile of the thread. Throws like {@link connections} and like the profiler. */
  async profile(command: ProfileCommand): Promise<ThreadProfile> {
    const takes = command.kind === 'cpu' ? command.durationMs : 0;
    const timeoutMs = takes + PROFILE_TIMEOUT_MS;
    const answer = await this.#ask({ type: 'profile', command }, 'profile', timeoutMs);
    return present('profile' in answer ? answer.profile : null, 'a profile answers a profile');
  }

  /** Returns the total activity of each pod. Throws like {@link connections}. */
  async activity(): Promise<readonly PodActivity[]> {
    const report = await this.#ask({ type: 'report', what: 'activity' }, 'activity');
    return 'activity' in report ? report.activity : [];
  }

  /** Fails everything that waits for the thread, which is gone. Idempotent. */
  close(error: MeshError): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.#control.close();
    for (const report of this.#reports.values()) {
      report.timer.cancel();
      report.reject(error);
    }
    this.#reports.clear();
    for (const pod of this.pods.values()) pod.end(error);
    this.pods.clear();
  }

  /** Fetches the connections kept for export since the last call. Throws like {@link connections}. */
  async exports(): Promise<{
    readonly connections: readonly ExportedConnection[];
    readonly dropped: ExportDrops;
  }> {
    const report = await this.#ask({ type: 'report', what: 'exports' }, 'exports');
    const late = this.#lateExports.splice(0);
    return 'exports' in report
      ? { connections: [...late, ...report.exports], dropped: report.dropped }
      : { connections: late, dropped: { logs: 0, traces: 0 } };
  }

  #ask(question: Question, what: string, timeoutMs = REPORT_TIMEOUT_MS): Promise<Answer> {
    if (!this.#alive) {
      return Promise.reject(
        new MeshError('ACTOR_FAILED', `listener thread ${this.number} is gone`),
      );
    }
    const id = this.#nextReport;
    this.#nextReport += 1;
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    const timer = this.#giveUpLater(id, timeoutMs);
    this.#reports.set(id, {
      timer,
      what,
      timeoutMs,
      connections: [],
      exports: [],
      resolve,
      reject,
    });
    this.#control.postMessage({ ...question, id } satisfies ControlToThread);
    return promise;
  }

  #giveUpLater(id: number, timeoutMs: number): Timer {
    return this.#clock.after(timeoutMs, () => {
      const pending = this.#reports.get(id);
      this.#reports.delete(id);
      this.#lateExports.push(...(pending?.exports ?? []));
      pending?.reject(
        new MeshError(
          'BUS_TIMEOUT',
          `listener thread ${this.number} gave no ${pending.what} within ${timeoutMs} ms`,
        ),
      );
    });
  }

  #answered(message: Answer): void {
    const pending = this.#reports.get(message.id);
    if (pending === undefined) {
      // The thread has dropped them, so the next question gets them.
      if ('exports' in message) this.#lateExports.push(...message.exports);
      return;
    }
    pending.timer.cancel();
    const { connections, exports } = pending;
    if ('connections' in message) connections.push(...message.connections);
    if ('exports' in message) exports.push(...message.exports);
    if ('done' in message && !message.done) {
      pending.timer = this.#giveUpLater(message.id, pending.timeoutMs);
      return;
    }
    this.#reports.delete(message.id);
    if ('connections' in message) pending.resolve({ ...message, connections });
    else if ('exports' in message) pending.resolve({ ...message, exports });
    else pending.resolve(message);
  }

  #refused(id: number, error: WireError): void {
    const pending = this.#reports.get(id);
    this.#reports.delete(id);
    pending?.timer.cancel();
    pending?.reject(MeshError.fromWire(error));
  }

  #takeSeries(message: SeriesMessage): void {
    const at = this.series.take(message);
    if (at !== null) this.send({ type: 'series.released', at });
  }

  #receive(message: ControlFromThread): void {
    switch (message.type) {
      case 'pod.listening':
        this.pods.get(message.uid)?.markListening();
        break;
      case 'pod.failed':
        this.pods.get(message.uid)?.markFailed(MeshError.fromWire(message.error));
        break;
      case 'certificate.needed':
        this.#events.certificateNeeded(this, message.identity);
        break;
      case 'report':
      case 'profile':
        this.#answered(message);
        break;
      case 'series':
        this.#takeSeries(message.message);
        break;
      case 'profile.failed':
        this.#refused(message.id, message.error);
        break;
    }
  }
}
