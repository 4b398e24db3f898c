import type { EventLoopUtilization } from 'node:perf_hooks';
import { MessageChannel } from 'node:worker_threads';
import type { MessagePort, Worker } from 'node:worker_threads';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type {
  ConnectionRecord,
  ControlFromThread,
  ControlToThread,
  MetricSample,
} from '../../../workers/listener/protocol.ts';
import { REPORT_TIMEOUT_MS } from '../limits.ts';
import type { PlacedPod } from './placed-pod.ts';
import type { ThreadLoad } from './placement.ts';

/** What a thread says that concerns more than one of its pods. */
export interface ThreadEvents {
  certificateNeeded(thread: ListenerThread, identity: string): void;
  /** A message nobody understands: a defect of the thread's code. */
  confused(thread: ListenerThread, message: unknown): void;
}

interface PendingReport {
  readonly timer: Timer;
  resolve(report: Report): void;
  reject(error: MeshError): void;
}

type Report = Extract<ControlFromThread, { type: 'report' }>;

/** One listener thread as node-proxy sees it: its control port, its pods, its load. */
export class ListenerThread {
  readonly number: number;
  readonly worker: Worker;
  /** Pods placed here whose task has not ended. */
  readonly pods = new Map<string, PlacedPod>();
  /** The far end of the control port, to be handed to the thread. */
  readonly farControl: MessagePort;
  readonly #control: MessagePort;
  readonly #clock: Clock;
  readonly #events: ThreadEvents;
  readonly #reports = new Map<number, PendingReport>();
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

  /** Its load since the last call. */
  load(): ThreadLoad {
    const now = this.worker.performance.eventLoopUtilization();
    const { utilization } = this.worker.performance.eventLoopUtilization(
      now,
      this.#lastUtilisation,
    );
    this.#lastUtilisation = now;
    return { thread: this.number, pods: this.pods.size, utilisation: utilization };
  }

  /** Sends; without effect once the thread is gone. */
  send(message: ControlToThread): void {
    if (this.#alive) this.#control.postMessage(message);
  }

  /** The live connections of its pods. BUS_TIMEOUT when it does not answer, ACTOR_FAILED when it died. */
  async connections(): Promise<readonly ConnectionRecord[]> {
    const report = await this.#report('connections');
    return 'connections' in report ? report.connections : [];
  }

  /** Connections that ended there lately. Throws like {@link connections}. */
  async recent(): Promise<readonly ConnectionRecord[]> {
    const report = await this.#report('recent');
    return 'connections' in report ? report.connections : [];
  }

  /** Its counters and gauges. Throws like {@link connections}. */
  async metrics(): Promise<readonly MetricSample[]> {
    const report = await this.#report('metrics');
    return 'metrics' in report ? report.metrics : [];
  }

  /** The thread is gone: everything that waits for it fails. Idempotent. */
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

  #report(what: 'connections' | 'recent' | 'metrics'): Promise<Report> {
    if (!this.#alive) {
      return Promise.reject(
        new MeshError('ACTOR_FAILED', `listener thread ${this.number} is gone`),
      );
    }
    const id = this.#nextReport;
    this.#nextReport += 1;
    const { promise, resolve, reject } = Promise.withResolvers<Report>();
    const timer = this.#clock.after(REPORT_TIMEOUT_MS, () => {
      this.#reports.delete(id);
      reject(
        new MeshError(
          'BUS_TIMEOUT',
          `listener thread ${this.number} gave no ${what} within ${REPORT_TIMEOUT_MS} ms`,
        ),
      );
    });
    this.#reports.set(id, { timer, resolve, reject });
    this.#control.postMessage({ type: 'report', id, what } satisfies ControlToThread);
    return promise;
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
      case 'report': {
        const pending = this.#reports.get(message.id);
        this.#reports.delete(message.id);
        pending?.timer.cancel();
        pending?.resolve(message);
        break;
      }
      default:
        this.#events.confused(this, message satisfies never);
    }
  }
}
