import { setImmediate as turn } from 'node:timers/promises';
import type { MessagePort } from 'node:worker_threads';
import { collectAll, collectYoung } from '../../lib/actor/collector.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError } from '../../lib/errors/mesh-error.ts';
import type { HboneEngine } from '../../lib/hbone/engine.ts';
import { PeerTrust } from '../../lib/hbone/peer-trust.ts';
import { AccessGate } from '../../lib/log/access-gate.ts';
import { AccessLog } from '../../lib/log/access-log.ts';
import { LineOutput } from '../../lib/log/line-output.ts';
import type { LineStream } from '../../lib/log/line-output.ts';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import { createLogger, setLogFilter } from '../../lib/log/logger.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { ThreadProfiler } from '../../lib/profile/thread-profiler.ts';
import { OnDemandDns } from '../../lib/metrics/on-demand-dns.ts';
import { SeriesWriter } from '../../lib/metrics/series-memory.ts';
import { TrafficMetrics } from '../../lib/metrics/traffic.ts';
import { admissionLimits, nodeConnections } from './limits/admission.ts';
import { CertificateStore } from './tunnel/certificates.ts';
import { DescriptorGuard } from './limits/descriptor-guard.ts';
import { FairTurns } from './limits/fair-turns.ts';
import { ExportBuffer } from './telemetry/export-buffer.ts';
import { HANDSHAKES_PER_TURN } from './limits.ts';
import { sharedNames, threadDns } from './dns/thread-dns.ts';
import { HeldBytes } from '../../lib/net/held-bytes.ts';
import { NodeBudget, newBudgetMemory } from '../../lib/net/node-budget.ts';
import { runningSplices } from '../../lib/linux/splice-pump.ts';
import { PeerWatch } from './tunnel/peer-watch.ts';
import { Pod } from './pod.ts';
import type {
  ControlFromThread,
  ControlToThread,
  PodTask,
  ThreadAttachment,
} from './protocol/control.ts';
import type { ListenerSettings } from './protocol/settings.ts';
import { RecentConnections } from './telemetry/recent-connections.ts';
import { concat, sendRecords } from './telemetry/reports.ts';
import { ownPorts, tcpOptions, tunnelSettings } from './derived-settings.ts';
import { Neighbours } from './same-node/neighbours.ts';
import { Proofs } from './same-node/proof.ts';
import { StateClient } from './state-client.ts';
import type { ThreadContext } from './thread-context.ts';
import { ThreadMetrics } from './telemetry/thread-metrics.ts';
import type { ThreadBudget } from './telemetry/thread-metrics.ts';
import { trustSamples } from './telemetry/trust-metrics.ts';

const STANDARD_OUTPUT = 1;

/** One listener thread: its pods and its conversation with node-proxy. */
export class ListenerThread {
  readonly context: ThreadContext;
  readonly #neighbours: Neighbours;
  readonly #control: MessagePort;
  readonly #pods = new Map<string, Pod>();
  readonly #profiler = new ThreadProfiler();
  /** The thread's counters in memory that node-proxy reads. */
  readonly #series: SeriesWriter;
  /** Null where lines go to a test. */
  readonly #output: LineOutput | null;

  /** Tunnels are carried by `engine`; log lines go to standard output unless `logTo` is given. */
  constructor(attachment: ThreadAttachment, engine: HboneEngine, logTo?: LineStream) {
    const { settings, control } = attachment;
    this.#control = control;
    this.#output = logTo === undefined ? new LineOutput(STANDARD_OUTPUT, systemClock) : null;
    const log = createLogger(
      {
        actor: 'node-proxy',
        node: settings.node,
        worker: attachment.thread,
        level: settings.logLevel,
        format: settings.logFormat,
      },
      logTo ?? this.#output ?? undefined,
    );
    if (this.#output !== null) {
      this.#output.onDropped = (lines) => log.warn({ lines }, 'log.lines-dropped');
    }
    const state = stateClient(attachment);
    const metrics = new ThreadMetrics(attachment.thread);
    this.#series = new SeriesWriter((message) => this.#send({ type: 'series', message }));
    const descriptors = raiseFileLimit().soft;
    const trust = new PeerTrust(settings, { clock: systemClock, log });
    const { distrustGraceMs } = settings;
    const proofs = new Proofs(trust, { clock: systemClock, distrustGraceMs });
    const gate = new AccessGate(settings.accessLog);
    this.#neighbours = new Neighbours({ clock: systemClock, log });
    if (settings.sameNodeFastPath) this.#neighbours.addSelf();
    const { limits } = settings;
    const names = sharedNames(settings, log);
    const budget = new NodeBudget(attachment.budget ?? newBudgetMemory(), attachment.thread, {
      connections: limits.connections ?? nodeConnections(descriptors, settings.tls12),
      handshakes: limits.handshakes,
    });
    this.context = {
      settings,
      tunnelSettings: tunnelSettings(settings),
      tcpOptions: tcpOptions(settings),
      ownPorts: ownPorts(settings),
      admission: admissionLimits(settings, descriptors),
      budget,
      descriptors: new DescriptorGuard(descriptors, { clock: systemClock, log }),
      held: new HeldBytes(
        budget,
        { process: limits.bytes, perPod: limits.bytesPerPod },
        systemClock,
      ),
      handshakeTurns: new FairTurns(HANDSHAKES_PER_TURN),
      clock: systemClock,
      log,
      access: new AccessLog(log, gate, settings.exports?.logs === true),
      exports: exportBuffer(settings),
      gate,
      traffic: new TrafficMetrics(this.#series),
      onDemandDns: new OnDemandDns(this.#series),
      metrics,
      recent: new RecentConnections(),
      neighbours: this.#neighbours,
      state,
      peers: new PeerWatch({ state, metrics, log, network: settings.network }),
      certificates: this.#certificateStore(settings, trust, proofs, log),
      engine: trust.guard(engine),
      trust,
      dns: threadDns(settings, names, this.#series),
      names,
      proofs,
    };
    if (attachment.revocations !== null) void trust.setRevocations(attachment.revocations);
    control.on('message', (message: ControlToThread) => this.#obey(message));
  }

  /** Serves a pod until it is stopped. A start that fails is reported, not thrown. */
  async serve(task: PodTask): Promise<void> {
    const { uid } = task.pod;
    if (this.#pods.has(uid)) {
      this.#failed(uid, new MeshError('STATE_CONFLICT', `pod ${uid} is served here already`));
      return;
    }
    const pod = new Pod(task, this.context);
    this.#pods.set(uid, pod);
    try {
      await pod.start();
      this.#send({ type: 'pod.listening', uid });
      await pod.stopped;
    } catch (error) {
      this.#failed(uid, asMeshError(error, 'ACTOR_FAILED', 'cannot serve the pod'));
      await pod.stop('immediate', 0);
    } finally {
      this.#pods.delete(uid);
      this.#output?.flush();
    }
  }

  #certificateStore(
    settings: ListenerSettings,
    trust: PeerTrust,
    proofs: Proofs,
    log: Logger,
  ): CertificateStore {
    const { tls12, compliance, handshakeTimeoutMs } = settings;
    return new CertificateStore(
      {
        tls12,
        compliance,
        handshakeTimeoutMs,
        request: (identity) => this.#send({ type: 'certificate.needed', identity }),
        rootsChanged: (credentials) => {
          proofs.rootsChanged(credentials);
          void trust.rootsChanged(credentials);
        },
        unusable: (identity, error) =>
          log.error({ identity, error: error.message }, 'certificate.unusable'),
      },
      systemClock,
    );
  }

  #obey(message: ControlToThread): void {
    switch (message.type) {
      case 'certificate':
        this.context.certificates.put(message.certificate);
        break;
      case 'certificate.unavailable':
        this.context.certificates.unavailable(message.identity, MeshError.fromWire(message.error));
        break;
      case 'certificate.drop':
        this.context.certificates.drop(message.identity);
        this.context.proofs.drop(message.identity);
        this.context.trust.drop(message.identity);
        break;
      case 'revocations':
        void this.context.trust.setRevocations(message.lists);
        this.context.proofs.recheck();
        break;
      case 'pod.stop':
        this.#stopPod(message);
        break;
      case 'pod.divide':
        this.#pods.get(message.uid)?.divide(message.threads);
        break;
      case 'report':
        this.#report(message);
        break;
      case 'profile':
        this.#profile(message);
        break;
      case 'neighbour':
        this.#neighbours.add(message.port);
        break;
      case 'log.level':
        setLogFilter(this.context.log, message.level);
        break;
      case 'access.settings':
        this.context.gate.change(message.settings);
        break;
      case 'series.released':
        this.#series.released(message.at);
        break;
      case 'memory.release':
        this.#releaseMemory();
        break;
    }
  }

  /** Connections are not to wait for the garbage of their thread but where few milliseconds do. */
  #releaseMemory(): void {
    const carries = [...this.#pods.values()].some((pod) => pod.carries);
    if (carries) collectYoung();
    else collectAll();
  }

  #stopPod(message: Extract<ControlToThread, { type: 'pod.stop' }>): void {
    this.#pods
      .get(message.uid)
      ?.stop(message.mode, message.deadlineMs)
      .catch((error: unknown) => {
        const { message: text } = asMeshError(error, 'ACTOR_FAILED');
        this.context.log.error({ podUid: message.uid, error: text }, 'pod.stop-failed');
      });
  }

  #report(message: Extract<ControlToThread, { type: 'report' }>): void {
    const { id, what, withLines } = message;
    if (what === 'activity') {
      const activity = [...this.#pods].map(([uid, pod]) => ({ uid, total: pod.activity }));
      this.#send({ type: 'report', id, activity });
      return;
    }
    if (what === 'exports') {
      this.#reportExports(id);
      return;
    }
    if (what !== 'metrics') {
      const { recent } = this.context;
      const records =
        what === 'recent'
          ? recent.records(withLines)
          : concat(this.#pods.values(), (pod) => pod.records(withLines));
      void sendRecords(records, (connections, done) =>
        this.#send({ type: 'report', id, connections, done }),
      );
      return;
    }
    void this.#refresh(id);
  }

  /**
   * Brings the counters that node-proxy reads up to date: the bytes of live connections, some in a turn, and the values that
   * stand for the whole thread. No label set is looked at for that, and nothing but the answer is sent.
   */
  async #refresh(id: number): Promise<void> {
    const { traffic, metrics, state, trust, gate, dns } = this.context;
    for (const _ of traffic.refresh()) await turn();
    const pools = [...this.#pods.values()].flatMap((pod) => pod.poolStats);
    const budget = this.#budget();
    const gauges = {
      pods: this.#pods.size,
      cachedAnswers: state.cached,
      heldEndpoints: state.heldEndpoints,
      pools,
      budget,
      splices: runningSplices(),
      suppressedLines: gate.suppressed,
      droppedLines: this.#output?.dropped ?? 0,
    };
    this.#series.publish(metrics.samples(gauges));
    this.#series.publish(trustSamples(trust));
    dns?.metrics.refresh();
    this.#send({ type: 'report', id, refreshed: true });
    traffic.sweep();
  }

  #reportExports(id: number): void {
    const none = { logs: 0, traces: 0 };
    const { records, dropped } = this.context.exports?.take() ?? { records: [], dropped: none };
    void sendRecords(records, (exports, done) =>
      this.#send({ type: 'report', id, exports, dropped: done ? dropped : none, done }),
    );
  }

  #profile({ id, command }: Extract<ControlToThread, { type: 'profile' }>): void {
    this.#profiler.run(command).then(
      (profile) => this.#send({ type: 'profile', id, profile }),
      (error: unknown) => {
        const failure = asMeshError(error, 'ACTOR_FAILED', 'cannot profile the thread');
        this.#send({ type: 'profile.failed', id, error: failure.toWire() });
      },
    );
  }

  #budget(): ThreadBudget {
    const { budget, handshakeTurns, held } = this.context;
    return {
      connections: budget.own('connections'),
      handshakes: budget.own('handshakes'),
      waitingHandshakes: handshakeTurns.waiting,
      heldBytes: held.bytes,
      pressure: held.pressure,
      busiestPod: Math.max(0, ...[...this.#pods.values()].map((pod) => pod.admission.count)),
    };
  }

  #failed(uid: string, error: MeshError): void {
    this.#send({ type: 'pod.failed', uid, error: error.toWire() });
  }

  #send(message: ControlFromThread): void {
    this.#control.postMessage(message);
  }
}

function exportBuffer({ exports }: ListenerSettings): ExportBuffer | null {
  return exports === undefined || exports === null ? null : new ExportBuffer(exports);
}

function stateClient({ settings, state }: ThreadAttachment): StateClient {
  return new StateClient(state, systemClock, { onDemandWaitMs: settings.onDemandWaitMs ?? null });
}
