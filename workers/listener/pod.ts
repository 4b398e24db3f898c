import { Roster } from '../../lib/collections/roster.ts';
import type { Timer } from '../../lib/clock/clock.ts';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import type { ServerTunnel } from '../../lib/hbone/engine.ts';
import { TunnelPool } from '../../lib/hbone/pool.ts';
import type { PoolStats } from '../../lib/hbone/pool.ts';
import { DenialLines } from '../../lib/log/denial-lines.ts';
import type { PodBytes } from '../../lib/net/held-bytes.ts';
import { Admission } from './limits/admission.ts';
import { Connection } from './telemetry/connection.ts';
import type { ConnectionFacts } from './telemetry/connection.ts';
import { PodDns } from './dns/pod-dns.ts';
import { serveInboundSocket } from './tunnel/inbound-tunnel.ts';
import { BYTES_PER_COST, CLOSE_GRACE_MS, CONNECTION_COST } from './limits.ts';
import { Listener } from './listener.ts';
import type { ListenerKind } from './listener.ts';
import { enableMigration } from './migration.ts';
import { serveOutbound } from './outbound.ts';
import { servePassthrough } from './plain/passthrough-inbound.ts';
import type { PodContext } from './thread-context.ts';
import { PodPolicy } from './policy.ts';
import { serveSocks } from './plain/socks5.ts';
import { RecentOfPod } from './telemetry/recent-connections.ts';
import type { ConnectionRecord } from './protocol/connections.ts';
import type { PodInfo, PodTask } from './protocol/control.ts';
import { NameLookups } from './dns/endpoint-names.ts';
import type { ThreadContext } from './thread-context.ts';
import { connectTunnel } from './tunnel/tunnel-client.ts';

/** A pod on this thread: its listeners, its pool, its live connections, and their end. */
export class Pod implements PodContext {
  readonly thread: ThreadContext;
  readonly pod: PodInfo;
  readonly netnsFd: number;
  readonly pool: TunnelPool;
  readonly policy: PodPolicy;
  readonly names: NameLookups;
  /** Null when the DNS proxy is off. */
  readonly dns: PodDns | null;
  readonly admission: Admission;
  readonly bytes: PodBytes;
  /** Resolves when the pod is stopped and its sockets are closed. */
  readonly stopped: Promise<void>;
  readonly #markStopped: () => void;
  readonly #unwatch: () => void;
  readonly #denials: DenialLines;
  readonly #socksPool: TunnelPool | null;
  readonly #listeners: Listener[] = [];
  readonly #live = new Roster<Connection>();
  readonly #recent: RecentOfPod;
  readonly #tunnels = new Set<ServerTunnel>();
  #transparent = false;
  #migrates = false;
  #threads = 1;
  #opened = 0;
  #endedBytes = 0;
  /** Ends a graceful drain. */
  #deadline: { readonly atMs: number; readonly timer: Timer } | null = null;
  #sourceLostLogged = false;
  #finished = false;
  #state: 'serving' | 'draining' | 'ended' = 'serving';

  constructor(task: PodTask, thread: ThreadContext) {
    const { settings } = thread;
    this.thread = thread;
    this.pod = task.pod;
    this.netnsFd = task.netnsFd;
    this.#unwatch = thread.state.watch(task.pod);
    this.admission = new Admission(thread.admission, thread.budget);
    this.bytes = thread.held.open();
    this.#recent = new RecentOfPod(thread.recent, task.pod.uid, thread.clock);
    this.#denials = new DenialLines(task.pod.uid, thread.log, thread.gate);
    this.policy = new PodPolicy({
      pod: task.pod,
      connections: this.#live,
      state: thread.state,
      log: thread.log,
      metrics: thread.metrics,
      unknownReference: settings.policyUnknownReference,
      infoLogging: settings.authzInfoLogging,
    });
    this.pool = this.#makePool();
    this.#socksPool = settings.ports.socks5 === null ? null : this.#makePool();
    this.names = new NameLookups({
      ...thread.names,
      ipv6: settings.ipv6,
      clock: thread.clock,
      descriptors: thread.descriptors,
    });
    const dns = task.pod.own === true ? null : thread.dns;
    this.dns = dns === null ? null : new PodDns(this, dns, () => this.#endWhenIdle());
    const { promise, resolve } = Promise.withResolvers<void>();
    this.stopped = promise;
    this.#markStopped = resolve;
  }

  get ended(): boolean {
    return this.#state === 'ended';
  }

  get transparent(): boolean {
    return this.#transparent;
  }

  get migrates(): boolean {
    return this.#migrates;
  }

  get threads(): number {
    return this.#threads;
  }

  /** Its activity here so far; see PodActivity. */
  get activity(): number {
    let bytes = this.#endedBytes;
    for (const connection of this.#live) bytes += connection.bytes;
    return this.#opened * CONNECTION_COST + bytes / BYTES_PER_COST;
  }

  /** Whether it has connections here. */
  get carries(): boolean {
    return this.#live.size > 0;
  }

  /** The pod is served by so many threads: what it may have is divided among them. */
  divide(threads: number): void {
    this.#threads = threads;
    this.admission.divide(threads);
    this.bytes.divide(threads);
    this.pool.divide(threads);
    this.#socksPool?.divide(threads);
  }

  get poolStats(): PoolStats[] {
    return [this.pool.stats, ...(this.#socksPool === null ? [] : [this.#socksPool.stats])];
  }

  /** Binds all listeners; a failure of any leaves none (NATIVE_SYSCALL). */
  async start(): Promise<void> {
    const { ports, dnsOnly } = this.thread.settings;
    if (this.pod.own === true) {
      this.#listenHbone();
      return;
    }
    this.#migrates = enableMigration(this.netnsFd, this.thread.log);
    await this.dns?.open();
    if (dnsOnly === true) return;
    this.#listenHbone();
    this.#listen('inbound-plaintext', ports.inboundPlaintext, (captured) =>
      servePassthrough(this, captured),
    );
    this.#listen('outbound', ports.outbound, (captured) => serveOutbound(this, captured));
    this.#startSocks();
    // Stopped while it started, it has withdrawn already: nobody would withdraw it again.
    if (this.#state === 'serving') this.thread.neighbours.serve(this);
  }

  open(facts: ConnectionFacts): Connection {
    const connection = new Connection(facts, this.thread, this.pod.namespace);
    this.#live.add(connection);
    this.#opened += 1;
    if (this.#state === 'ended') connection.drain();
    return connection;
  }

  close(connection: Connection, error: unknown): void {
    this.#live.delete(connection);
    this.#endedBytes += connection.bytes;
    connection.finish(error === null ? null : asMeshError(error, 'UPSTREAM_CONNECT'));
    this.#recent.add(connection);
    this.#endWhenIdle();
  }

  deny(
    denial: { source: string; destination: string; direction: 'inbound' | 'outbound' },
    error: unknown,
  ): void {
    this.thread.metrics.earlyDenials['early-denial'] += 1;
    const { message } = asMeshError(error, 'UPSTREAM_CONNECT');
    const line = this.#denials.write({ ...denial, error: message });
    if (line !== null) this.thread.exports?.denied(line, this.thread.clock.now());
  }

  addTunnel(tunnel: ServerTunnel): void {
    this.#tunnels.add(tunnel);
    if (this.#state === 'draining') tunnel.drain();
    if (this.#state === 'ended') tunnel.destroy();
    void tunnel.closed.then((end) => {
      this.#tunnels.delete(tunnel);
      if (end === 'too-many-resets') {
        const { identity } = tunnel.peer;
        this.thread.log.warn({ podUid: this.pod.uid, peer: identity }, 'tunnel.too-many-resets');
      }
      this.#endWhenIdle();
    });
  }

  sourceLost(error: unknown): void {
    this.thread.metrics.transparencyLost += 1;
    if (this.#sourceLostLogged) return;
    this.#sourceLostLogged = true;
    const { message } = asMeshError(error, 'NATIVE_SYSCALL');
    this.thread.log.warn({ podUid: this.pod.uid, error: message }, 'source.not-preserved');
  }

  /** Records of its live connections, each made when it is asked for. */
  *records(withLines = false): Generator<ConnectionRecord> {
    for (const connection of this.#live) yield connection.record(this.pod.uid, withLines);
  }

  /**
   * Closes the listeners now. Immediate: ends every connection. Graceful: lets them end by themselves until the
   * deadline, which another graceful stop may bring forward. Resolves with {@link stopped}; an immediate stop may
   * follow a graceful one.
   */
  async stop(mode: 'immediate' | 'graceful', deadlineMs: number): Promise<void> {
    if (this.#state === 'ended') return this.stopped;
    this.thread.neighbours.withdraw(this);
    for (const listener of this.#listeners) listener.close();
    this.dns?.close();
    if (mode === 'immediate') {
      this.#end();
      return this.stopped;
    }
    if (this.#state === 'serving') {
      this.#state = 'draining';
      for (const tunnel of this.#tunnels) tunnel.drain();
      this.#endWhenIdle();
    }
    this.#endWithin(deadlineMs);
    return this.stopped;
  }

  /** SOCKS5 on loopback, with tunnels of its own (docs/spec/dataplane.md §12). */
  #startSocks(): void {
    const port = this.thread.settings.ports.socks5;
    const pool = this.#socksPool;
    if (port === null || pool === null) return;
    const serve: Listener['serve'] = ({ socket, source, local }) =>
      serveSocks(this, { socket: socket.adopt(), source, local }, { pool, dns: this.dns });
    this.#listen('socks5', port, serve, '127.0.0.1');
  }

  #makePool(): TunnelPool {
    const { clock, settings } = this.thread;
    return new TunnelPool(
      { idleReleaseMs: settings.http2.idleReleaseMs, waitMs: settings.connectRetry.totalMs },
      { clock, connect: (key, handshake) => connectTunnel(this, key, handshake) },
    );
  }

  #listenHbone(): void {
    const { inboundHbone } = this.thread.settings.ports;
    this.#listen('inbound-hbone', inboundHbone, ({ socket, source, local }) =>
      serveInboundSocket(this, socket.adopt(), { source, local }),
    );
  }

  #listen(
    kind: ListenerKind,
    port: number,
    serve: Listener['serve'],
    address: string | null = null,
  ): void {
    // The pod was stopped while it started: its connections may run on, and it accepts no new ones.
    if (this.#state !== 'serving') return;
    const onClosed = (): void => this.#endWhenIdle();
    const listener = new Listener(this, kind, { port, serve, onClosed, address });
    this.#listeners.push(listener);
    listener.open();
    if (address !== null) return;
    this.#transparent = this.#listeners.every(({ transparent }) => transparent);
  }

  #endWithin(deadlineMs: number): void {
    const { clock } = this.thread;
    const atMs = clock.monotonic() + deadlineMs;
    if (this.#state !== 'draining' || atMs >= (this.#deadline?.atMs ?? Infinity)) return;
    this.#deadline?.timer.cancel();
    this.#deadline = { atMs, timer: clock.after(deadlineMs, () => this.#end()) };
  }

  #endWhenIdle(): void {
    if (this.#state !== 'draining' || this.#live.size > 0 || this.#tunnels.size > 0) return;
    if (this.dns !== null && this.dns.inProgress > 0) return;
    if (this.#listeners.every((listener) => listener.sockets === 0)) this.#end('idle');
  }

  /** Ends what is left: nothing but tunnels to others where the pod is idle. */
  #end(was: 'idle' | 'busy' = 'busy'): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.thread.neighbours.withdraw(this);
    this.#deadline?.timer.cancel();
    this.policy.close();
    for (const connection of this.#live) connection.drain();
    for (const tunnel of this.#tunnels) tunnel.destroy();
    this.dns?.end();
    this.names.close();
    const closed = [this.#endPools(was), ...this.#listeners.map((listener) => listener.end())];
    // A socket or tunnel that does not close holds back neither the pod's end nor the process.
    const timer = this.thread.clock.after(CLOSE_GRACE_MS, this.#finish);
    void Promise.all(closed).then(() => {
      timer.cancel();
      this.#finish();
    });
  }

  async #endPools(was: 'idle' | 'busy'): Promise<void> {
    const pools = [this.pool, ...(this.#socksPool === null ? [] : [this.#socksPool])];
    // The last bytes of ended connections may wait for a slow network.
    if (was === 'idle') await Promise.all(pools.map((pool) => pool.drain()));
    else for (const pool of pools) pool.close();
  }

  /** Once: what closes after its grace finds the pod reported as ended, and perhaps another one under its uid. */
  readonly #finish = (): void => {
    if (this.#finished) return;
    this.#finished = true;
    this.#denials.flush();
    this.bytes.close();
    this.#unwatch();
    this.#markStopped();
  };
}
