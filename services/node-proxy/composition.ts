import { randomBytes } from 'node:crypto';
import type { ActorContext, Deadline } from '../../lib/actor/actor.ts';
import {
  SIGNED_BOARD,
  certificateSign,
  proxyPresenceSchema,
  signedSchema,
} from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import { PROXIES } from '../../lib/bus/keys.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { CertificateManager } from '../../lib/identity/certificate-manager.ts';
import { certificateMetrics } from '../../lib/identity/certificate-metrics.ts';
import { CrlFile } from '../../lib/identity/crl-file.ts';
import type { CrlFileDeps } from '../../lib/identity/crl-file.ts';
import { meshBundle } from '../../lib/identity/mesh-roots.ts';
import type { TrustBundle } from '../../lib/identity/trust-bundle.ts';
import { closeFd, listenersByPort, netnsIdentity, openNetns } from '../../lib/linux/netns.ts';
import { raiseFileLimit } from '../../lib/linux/process.ts';
import type { PodInfo } from '../../workers/listener/protocol/control.ts';
import { CertificateDistributor } from './certificates/certificate-distributor.ts';
import type { NodeProxyConfig } from './config.ts';
import { configDump } from './dump/config-dump.ts';
import { Generation } from './generation/generation.ts';
import { NOBODY } from './generation/other-proxies.ts';
import { nodeProxyMetrics } from './metrics.ts';
import type { NodeProxyMetrics } from './metrics.ts';
import { OwnListener } from './pods/own-listener.ts';
import { PodManager } from './pods/pod-manager.ts';
import { dedicatedPod, nodeAgentPods } from './pods/pod-source.ts';
import type { PodSource } from './pods/pod-source.ts';
import { HotPods } from './pool/hot-pods.ts';
import { ListenerPool } from './pool/listener-pool.ts';
import type { PlacedPod } from './pool/placed-pod.ts';
import { readinessBlocker } from './readiness-blocker.ts';
import { NodeProxyServers } from './servers/servers.ts';
import { ThreadTotals } from './servers/thread-totals.ts';
import { BusSigning } from './signing.ts';
import { WantSender } from './state-thread/on-demand/want-sender.ts';
import { startFeed } from './state-thread/state-feed.ts';
import { StateThread } from './state-thread/state-thread.ts';
import { Telemetry, threadLogging } from './telemetry.ts';

/** The parts of the process and how they are wired. */
export class Composition {
  readonly #config: NodeProxyConfig;
  readonly #node: string;
  readonly #context: ActorContext;
  readonly #made: AsyncDisposableStack;
  /** Names this process; no earlier run of it has the same name. */
  readonly #member: string;
  /** These keep the process from being ready (docs/spec/inpod.md §7); a proxy that serves stays ready without the agent (README.md). */
  readonly #blockPods: (blocking: boolean) => void;
  readonly #blockTakeover: (blocking: boolean) => void;
  readonly #stateReady: () => void;
  readonly #metrics: NodeProxyMetrics;
  readonly #bus: Bus;
  readonly #bundle: TrustBundle;
  /** Null when no revocation lists are configured. */
  readonly #crl: CrlFile | null;
  readonly #certificates: CertificateManager;
  readonly #distributor: CertificateDistributor;
  readonly #state: StateThread;
  readonly #totals = new ThreadTotals();
  readonly #pool: ListenerPool;
  readonly #pods: PodManager;
  readonly #own: OwnListener | null;
  readonly #source: PodSource;
  readonly #telemetry: Telemetry;
  readonly #servers: NodeProxyServers;
  readonly #generation: Generation;
  readonly #failed = Promise.withResolvers<never>();
  readonly #ending = new AbortController();
  #hot: HotPods | null = null;
  #stopping = false;

  /** Everything that needs an end is put on `made`, whose owner ends it, the last part first. */
  constructor(
    config: NodeProxyConfig,
    listenerEntry: string,
    context: ActorContext,
    made: AsyncDisposableStack,
  ) {
    this.#config = config;
    this.#node = present(context.node, 'a node actor has a node');
    this.#context = context;
    this.#made = made;
    this.#member = `node-proxy-${this.#node}-${randomBytes(6).toString('hex')}`;
    this.#blockPods = readinessBlocker(context.readiness, 'workload proxy manager');
    this.#blockTakeover = readinessBlocker(context.readiness, 'takeover');
    this.#blockTakeover(false);
    this.#stateReady = context.readiness.block('state manager');
    context.supervise('node-proxy', this.#failed.promise);
    this.#metrics = this.#declareMetrics();
    this.#bus = this.#closing(this.#connectBus());
    this.#bundle = this.#closing(meshBundle(config.roots, context));
    this.#crl = this.#makeCrl();
    this.#certificates = this.#closing(this.#makeCertificates());
    this.#distributor = this.#closing(this.#makeDesk());
    this.#state = this.#closing(this.#makeStateThread());
    this.#pool = this.#closing(this.#makePool(listenerEntry));
    context.onMemoryRelease(() => this.#state.releaseMemory());
    context.onMemoryRelease(() => this.#pool.broadcast({ type: 'memory.release' }));
    this.#telemetry = this.#closing(this.#makeTelemetry());
    this.#servers = this.#closing(this.#makeServers());
    this.#own = this.#makeOwnListener();
    this.#pods = made.adopt(this.#makePods(), (pods) => pods.stop());
    this.#source = this.#closing(this.#makePodSource());
    this.#generation = this.#closing(this.#makeGeneration());
    made.defer(() => this.#end());
  }

  /** The ports the servers took. */
  get ports(): Readonly<Record<string, number | null>> {
    return this.#servers.ports;
  }

  /** Starts everything but the pods, which wait for the mesh state. */
  async start(): Promise<void> {
    await this.#bundle.start();
    await this.#crl?.start();
    await this.#pool.start();
    this.#hot = this.#closing(this.#makeHotPods());
    await this.#servers.listen();
    this.#servers.route(this.#context.admin);
    const deps = { ...this.#context, bus: this.#bus };
    this.#closing(
      await startFeed(this.#config.local, deps, (table, step) => this.#state.feed(table, step)),
    );
  }

  /**
   * Stops accepting once another proxy listens for the pods, or the time for that is over. All pods then drain in parallel.
   * The session with the node agent stays until they are gone, because pods may leave meanwhile.
   */
  async drain(deadline: Deadline): Promise<void> {
    this.#end();
    await this.#generation.handOver(deadline);
    this.#stopping = true;
    this.#source.drain();
    this.#blockPods(true);
    this.#distributor.retire();
    this.#hot?.close();
    const leftMs = deadline.remainingMs();
    const drained = Promise.all([this.#pods.drain(leftMs), this.#own?.drain(leftMs)]);
    // Without a free port the standard ones stay; that must not cut what drains.
    const yielded = this.#servers.yield().catch((error: unknown) => {
      this.#context.log.warn({ error: errorText(error) }, 'port.yield-failed');
    });
    await Promise.all([drained, yielded]);
    await this.#source.close();
  }

  #closing<Part extends { close(): void | Promise<void> }>(part: Part): Part {
    return this.#made.adopt(part, (made) => made.close());
  }

  #declareMetrics(): NodeProxyMetrics {
    return nodeProxyMetrics(this.#context.metrics, this.#config.istioVersion, {
      activePods: () => this.#pods.pods.size - this.#pods.pending.length,
      pendingPods: () => this.#pods.pending.length,
      threads: () => this.#pool.threads.size,
      state: () => this.#state.stats,
      leavingPods: () => this.#pods.leaving,
      sharedPods: () =>
        [...this.#pods.pods.values()].filter(({ shares }) => shares.size > 0).length,
      proxies: () => [this.#generation.self(), ...this.#generation.others],
      siblings: () => this.#source.siblings ?? null,
      crl: () => this.#crl?.stats ?? null,
    });
  }

  #makeCrl(): CrlFile | null {
    const { crlPath } = this.#config;
    if (crlPath === null) return null;
    const { clock, log } = this.#context;
    const onChange: CrlFileDeps['onChange'] = (lists) => this.#pool.setRevocations(lists);
    return this.#closing(new CrlFile(crlPath, { clock, log, onChange }));
  }

  #makeDesk(): CertificateDistributor {
    return new CertificateDistributor({
      manager: this.#certificates,
      log: this.#context.log,
      threads: () => this.#pool.threads.values(),
    });
  }

  #connectBus(): Bus {
    const { log, clock, metrics, supervise } = this.#context;
    const name = `node-proxy.${this.#node}`;
    // The process only reads tables and carries traffic, so it goes on when Redis has evicted keys.
    const deps = { log, clock, metrics, name, supervise, toleratesEviction: true };
    return connectBus(this.#config.bus, deps);
  }

  #makeCertificates(): CertificateManager {
    const { clock, log, metrics } = this.#context;
    const scope = { node: this.#node };
    const signing = new BusSigning(this.#member, {
      clock,
      log,
      bus: this.#bus,
      queue: this.#bus.queue(certificateSign, scope),
      board: this.#bus.results(SIGNED_BOARD, scope, signedSchema),
    });
    const counted = certificateMetrics(metrics, {
      counts: () => this.#certificates.counts(),
      hoursToFirstExpiry: () => this.#certificates.hoursToFirstExpiry(),
    });
    const deps = { clock, log, signing, bundle: this.#bundle, metrics: counted };
    return new CertificateManager(this.#node, deps);
  }

  #makeStateThread(): StateThread {
    const { clock, log } = this.#context;
    const { listener } = this.#config;
    const settings = {
      node: this.#node,
      dedicatedTo: this.#config.dedicatedTo,
      ...threadLogging(log),
      policyUnknownReference: listener.policyUnknownReference,
      onDemand: this.#config.onDemand,
    };
    const wanted = new WantSender({ log, add: (names) => this.#bus.want(names) });
    // An isolate of its own, with its copy of the code, takes 17 MB.
    return new StateThread(settings, !this.#context.sharesProcess, clock, {
      ready: () => {
        log.info('state.ready');
        this.#stateReady();
        this.#context.supervise('takeover', this.#connectWhenAdmitted());
      },
      // A proxy without traffic needs no certificate.
      identities: (identities) =>
        this.#distributor.setLocal(listener.dnsOnly === true ? [] : identities),
      want: (names) => wanted.send(names),
      failed: (error) => this.#failed.reject(error),
    });
  }

  #makePool(entry: string): ListenerPool {
    const { clock, log } = this.#context;
    const exports = this.#context.exports?.connections ?? null;
    const node = this.#node;
    const settings = { ...this.#config.listener, node, exports, ...threadLogging(log) };
    return new ListenerPool(
      { entry, threads: this.#config.threads, settings },
      {
        clock,
        log,
        connectState: (thread) => this.#state.connect(thread),
        certificateNeeded: (thread, identity) => this.#distributor.needed(thread, identity),
        threadLost: (thread) => {
          this.#metrics.threadLost();
          this.#totals.retire(thread);
        },
        unrecoverable: (error) => this.#failed.reject(error),
      },
    );
  }

  #makePods(): PodManager {
    const { clock, log } = this.#context;
    return new PodManager({
      clock,
      log,
      counters: this.#metrics.pods,
      podDrainMs: this.#config.podDrainMs,
      place: (info, netnsFd, avoid) => this.#place(info, netnsFd, avoid),
      placeOn: ({ info }, thread, netnsFd) =>
        this.#provide(this.#pool.placeOn(thread, info, netnsFd)),
      duplicate: (netnsFd) => openNetns(`/proc/self/fd/${netnsFd}`),
      divide: (uid, threads) => this.#pool.divide(uid, threads),
      netnsIdentity,
      closeFd,
      changed: () => {
        if (this.#pods.ready && !this.#stopping) this.#blockPods(false);
        this.#distributor.forgetUnused();
        this.#generation.changed();
      },
    });
  }

  #place(info: PodInfo, netnsFd: number, avoid: ReadonlySet<number>): PlacedPod {
    return this.#provide(this.#pool.place(info, netnsFd, avoid));
  }

  /** Gives the thread the certificates of the pod that are there, for as long as it serves the pod. */
  #provide(placed: PlacedPod): PlacedPod {
    void placed.ended.then(() => this.#distributor.forgetUnused());
    const thread = this.#pool.threads.get(placed.thread);
    if (thread !== undefined) this.#distributor.podPlaced(thread);
    return placed;
  }

  #makeOwnListener(): OwnListener | null {
    const { own } = this.#config;
    if (own === null) return null;
    const place = (info: PodInfo, fd: number): PlacedPod => this.#place(info, fd, new Set());
    return this.#made.adopt(new OwnListener(own, this.#context, place), (made) => made.stop());
  }

  #makePodSource(): PodSource {
    const { dedicatedTo } = this.#config;
    if (dedicatedTo !== null) return dedicatedPod(dedicatedTo, this.#pods, this.#context.log);
    return nodeAgentPods(this.#config, this.#pods, this.#context, this.#metrics.zdsSession);
  }

  #makeHotPods(): HotPods {
    const { clock, log } = this.#context;
    return new HotPods(this.#config.hot, {
      clock,
      log,
      threads: () => this.#pool.threads.values(),
      pods: this.#pods,
      onShared: () => this.#metrics.shared(),
    });
  }

  #makeGeneration(): Generation {
    const { clock, log } = this.#context;
    const { group, handoverMs, strangersMs, listener } = this.#config;
    const { outbound, inboundPlaintext, inboundHbone } = listener.ports;
    const podPorts = listener.dnsOnly === true ? [] : [outbound, inboundPlaintext, inboundHbone];
    return new Generation(
      { group, handoverMs, strangersMs, member: this.#member, podPorts },
      {
        clock,
        log,
        presence:
          this.#config.dedicatedTo === null
            ? this.#bus.presence(PROXIES, { node: this.#node }, proxyPresenceSchema)
            : NOBODY,
        waits: (waiting) => this.#blockTakeover(waiting),
        serves: () => this.#pods.ready,
        missing: () => this.#distributor.missing(),
        pods: () => this.#pods.listening(),
        ports: () => this.#servers.ports,
        listenersByPort,
        residentBytes: () => process.memoryUsage.rss(),
      },
    );
  }

  async #connectWhenAdmitted(): Promise<void> {
    const { signal } = this.#ending;
    if (!(await this.#generation.admitted(signal))) return;
    this.#own?.start();
    this.#source.start();
  }

  #end(): void {
    this.#ending.abort(new MeshError('ACTOR_FAILED', 'the process ends'));
  }

  #makeTelemetry(): Telemetry {
    const { clock, log } = this.#context;
    return new Telemetry({
      clock,
      log,
      pool: this.#pool,
      state: this.#state,
      totals: this.#totals,
      accessLog: this.#config.listener.accessLog,
      exports: this.#context.exports ?? null,
      reportMissed: () => this.#metrics.reportMissed(),
    });
  }

  #makeServers(): NodeProxyServers {
    const { clock, log, metrics, readiness } = this.#context;
    const telemetry = this.#telemetry;
    return new NodeProxyServers(this.#config, {
      clock,
      log,
      descriptors: raiseFileLimit().soft,
      logging: telemetry,
      pending: () => readiness.pending(),
      configDump: () =>
        configDump({
          config: this.#config,
          state: (section) => this.#state.dump(section),
          certificates: () => this.#certificates.dump(),
          pods: () => this.#pods.pods,
          connections: () => telemetry.connections(),
        }),
      connections: (what, withLines) => telemetry.connections(what, withLines),
      certificates: () => this.#certificates.records(),
      profiled: () => telemetry.profiled(),
      requestShutdown: (why) => this.#context.requestShutdown(why),
      stats: {
        traffic: () => telemetry.metrics(),
        own: () => telemetry.own(metrics),
      },
    });
  }
}
