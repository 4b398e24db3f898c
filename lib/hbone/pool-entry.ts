import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import type { ClientTunnel, OpenRequest, TunnelStream } from './engine.ts';
import { BARREN_REST_MS, MAX_FAILED_CONNECTS, MAX_WAITERS_PER_KEY } from './limits.ts';

/** Rules for a request's wait for a tunnel. */
export interface TunnelWait {
  /** Tunnels that are avoided while the key may have others. */
  readonly avoid?: ReadonlySet<ClientTunnel>;
  /**
   * The time after which the request gives up and is not sent, even if a tunnel is in the making. Null: the request has the pool's time,
   * and longer while a tunnel is in the making, so that it learns why that fails.
   */
  readonly limitMs?: number | null;
}

/** The services of the pool for one key. */
export interface PoolEntryDeps {
  readonly clock: Clock;
  /** The peer's address for messages. */
  readonly peer: string;
  /** Most connections to make tunnels for. */
  readonly maxStreams: () => number;
  /** Most tunnels in the making at once. */
  readonly maxConnecting: () => number;
  readonly waitMs: () => number;
  /** Makes a tunnel when its turn comes; null if it is no longer `wanted` by then. */
  readonly connect: (wanted: () => boolean) => Promise<ClientTunnel | null>;
  /** Called when a tunnel has begun or ended a stream, has begun, or has ended. */
  readonly onChange: (tunnel: ClientTunnel) => void;
  /** Called when nothing is left under the key. */
  readonly onEmpty: () => void;
}

const NONE: ReadonlySet<ClientTunnel> = new Set();

interface Waiter {
  readonly request: OpenRequest;
  readonly avoid: ReadonlySet<ClientTunnel>;
  readonly waitMs: number;
  /** Whether it gives up when its time is up, even if a tunnel is in the making. */
  readonly firm: boolean;
  readonly timer: Timer;
  /** Whether its time is up. */
  late: boolean;
  readonly resolve: (stream: Promise<TunnelStream>) => void;
  readonly reject: (error: MeshError) => void;
}

/** The tunnels to one peer and the requests that wait for one. No step for one request looks at every tunnel. */
export class PoolEntry {
  /** Usable tunnels. */
  readonly tunnels = new Set<ClientTunnel>();
  /** The usable tunnels that had room when last looked at. */
  readonly #roomy = new Set<ClientTunnel>();
  /** The usable tunnels that carry no stream and whose peer accepts none. */
  readonly #barren = new Set<ClientTunnel>();
  /** Tunnels that accept no more streams and still carry some. */
  readonly #leaving = new Set<ClientTunnel>();
  readonly #deps: PoolEntryDeps;
  readonly #waiters = new Set<Waiter>();
  #connecting = 0;
  /** Failed attempts to make a tunnel since the last success. */
  #failed = 0;
  /** Runs while no tunnel is made, after one was released on which the peer accepted no stream. */
  #rest: Timer | null = null;
  /** Streams that a tunnel is assumed to carry; it gives the number of tunnels to make. */
  #streamsPerTunnel = 1;
  #closed = false;

  constructor(deps: PoolEntryDeps) {
    this.#deps = deps;
  }

  /** Opens a stream on a tunnel with room, and waits for one if need be. It avoids `wait.avoid` while there may be others. */
  open(request: OpenRequest, wait: TunnelWait): Promise<TunnelStream> {
    const { avoid = NONE, limitMs = null } = wait;
    const tunnel = this.#withRoom(avoid);
    if (tunnel !== null) return this.#start(tunnel, request);
    if (this.#waiters.size >= MAX_WAITERS_PER_KEY) {
      const why = `${MAX_WAITERS_PER_KEY} connections already wait for a tunnel to ${this.#deps.peer}`;
      return Promise.reject(new MeshError('UPSTREAM_CONNECT', why));
    }
    return new Promise((resolve, reject) => {
      const waitMs = limitMs ?? this.#deps.waitMs();
      const firm = limitMs !== null;
      const waiter: Waiter = {
        request,
        avoid,
        waitMs,
        firm,
        resolve,
        reject,
        timer: this.#deps.clock.after(waitMs, () => this.#timeUp(waiter)),
        late: false,
      };
      this.#waiters.add(waiter);
      this.#connectIfNeeded();
    });
  }

  /** Ends every tunnel now. */
  close(): void {
    for (const tunnel of this.#end()) tunnel.destroy();
  }

  /** Ends every tunnel once its streams have ended. Resolves when all are closed. */
  async drain(): Promise<void> {
    const tunnels = this.#end();
    for (const tunnel of tunnels) tunnel.drain();
    await Promise.all(tunnels.map(({ closed }) => closed));
  }

  /** Makes no more tunnels; returns those there are. */
  #end(): ClientTunnel[] {
    this.#closed = true;
    this.#rest?.cancel();
    this.#failWaiters(new MeshError('TUNNEL_CLOSED', 'the tunnel pool is closed'));
    return [...this.tunnels, ...this.#leaving];
  }

  #withRoom(avoid: ReadonlySet<ClientTunnel> | null): ClientTunnel | null {
    let avoided: ClientTunnel | null = null;
    for (const tunnel of this.#roomy) {
      if (tunnel.capacity === 0) this.#roomy.delete(tunnel);
      else if (avoid?.has(tunnel) !== true) return tunnel;
      else avoided ??= tunnel;
    }
    // At the limit no other tunnel can come.
    return this.tunnels.size >= this.#maxTunnels ? avoided : null;
  }

  get #maxTunnels(): number {
    return Math.max(1, Math.ceil(this.#deps.maxStreams() / this.#streamsPerTunnel));
  }

  #start(tunnel: ClientTunnel, request: OpenRequest): Promise<TunnelStream> {
    request.onTunnel?.(tunnel);
    const opened = tunnel.open(request);
    this.#note(tunnel);
    this.#deps.onChange(tunnel);
    return opened;
  }

  #connectIfNeeded(): void {
    const wanted = Math.ceil(this.#waiters.size / this.#streamsPerTunnel);
    while (this.#connecting < Math.min(wanted, this.#allowed())) {
      this.#connecting += 1;
      this.#deps
        .connect(() => this.#waiters.size > 0)
        .then(
          (tunnel) => {
            this.#connecting -= 1;
            if (tunnel === null) this.#unwanted();
            else this.#add(tunnel);
          },
          (error: unknown) => {
            this.#connecting -= 1;
            this.#connectFailed(asMeshError(error, 'UPSTREAM_CONNECT'));
            this.#dropIfEmpty();
          },
        );
    }
  }

  /** A tunnel was not made because no request waited. One may have come since and counted on it. */
  #unwanted(): void {
    if (this.#waiters.size > 0) this.#connectIfNeeded();
    this.#dropIfEmpty();
  }

  /**
   * One tunnel could not be made. Others in the making may still serve all waiting requests, and a peer with tunnels in use gets another
   * in its place. The requests fail when neither is left; each decides for itself whether to try again.
   */
  #connectFailed(error: MeshError): void {
    this.#failed += 1;
    const isAlive = this.tunnels.size > 0 && error.policy.retry !== 'never';
    if (isAlive && this.#failed <= MAX_FAILED_CONNECTS) {
      // Late requests waited only for this tunnel.
      if (this.#connecting === 0) this.#failWaiters(error, (waiter) => waiter.late);
      this.#connectIfNeeded();
    } else if (this.#connecting === 0) {
      this.#failed = 0;
      this.#failWaiters(error);
    }
  }

  /** Number of tunnels that may be in the making. */
  #allowed(): number {
    // The first tunnel shows how many streams one carries; until then one is enough.
    if (this.tunnels.size === 0) return 1;
    // A peer that accepts no stream on any of its tunnels would accept none on another.
    if (this.#barren.size === this.tunnels.size || this.#rest !== null) return 0;
    return Math.min(this.#deps.maxConnecting(), this.#maxTunnels - this.tunnels.size);
  }

  #add(tunnel: ClientTunnel): void {
    if (this.#closed) {
      tunnel.destroy();
      return;
    }
    if (!tunnel.usable) {
      this.#connectFailed(
        new MeshError('TUNNEL_CLOSED', 'the peer ended the tunnel as soon as it was made'),
      );
      this.#dropIfEmpty();
      return;
    }
    this.#failed = 0;
    this.tunnels.add(tunnel);
    this.#note(tunnel);
    tunnel.onChange(() => {
      this.#note(tunnel);
      this.#deps.onChange(tunnel);
      this.#releaseBarren();
      this.#serveWaiters();
      this.#dropIfEmpty();
    });
    this.#deps.onChange(tunnel);
    this.#releaseBarren();
    this.#serveWaiters();
    for (const waiter of this.#waiters) if (waiter.late) this.#giveUp(waiter);
  }

  /** Updates the sets for a tunnel. The number of streams its peer accepts may become known, and change, while it is in use. */
  #note(tunnel: ClientTunnel): void {
    const { usable, streams, capacity } = tunnel;
    // A tunnel without any capacity says nothing about the others.
    if (usable && streams + capacity > 0) this.#streamsPerTunnel = streams + capacity;
    keep(this.tunnels, tunnel, usable);
    keep(this.#roomy, tunnel, capacity > 0);
    keep(this.#barren, tunnel, usable && streams === 0 && capacity === 0);
    keep(this.#leaving, tunnel, !usable && streams > 0);
  }

  /** Drains tunnels whose peer accepts no stream while others carry some. The next tunnel is made after a pause. */
  #releaseBarren(): void {
    if (this.#closed || this.#barren.size === 0 || this.#barren.size === this.tunnels.size) return;
    this.#rest ??= this.#deps.clock.after(BARREN_REST_MS, () => {
      this.#rest = null;
      if (this.#waiters.size > 0) this.#connectIfNeeded();
    });
    for (const tunnel of this.#barren) tunnel.drain();
  }

  #serveWaiters(): void {
    for (const waiter of this.#waiters) {
      if (this.#withRoom(null) === null) break;
      const tunnel = this.#withRoom(waiter.avoid);
      if (tunnel === null) continue;
      this.#waiters.delete(waiter);
      waiter.timer.cancel();
      waiter.resolve(this.#start(tunnel, waiter.request));
    }
    if (this.#waiters.size > 0) this.#connectIfNeeded();
  }

  #failWaiters(error: MeshError, which: (waiter: Waiter) => boolean = () => true): void {
    for (const waiter of this.#waiters) {
      if (!which(waiter)) continue;
      this.#waiters.delete(waiter);
      waiter.timer.cancel();
      waiter.reject(error);
    }
  }

  #timeUp(waiter: Waiter): void {
    waiter.late = true;
    if (!waiter.firm && this.#connecting > 0) return;
    this.#giveUp(waiter);
    this.#dropIfEmpty();
  }

  /** Takes back a request that is not sent yet. A tunnel begun for it goes on to be made, for others. */
  #giveUp(waiter: Waiter): void {
    this.#waiters.delete(waiter);
    const { size } = this.tunnels;
    const full = size === 0 ? '' : `, and there is no room on the ${size} to it`;
    const why = `no tunnel to ${this.#deps.peer} within ${waiter.waitMs} ms${full}`;
    waiter.reject(new MeshError('UPSTREAM_TIMEOUT', why));
  }

  #dropIfEmpty(): void {
    const tunnels = this.tunnels.size + this.#leaving.size + this.#connecting;
    if (tunnels > 0 || this.#waiters.size > 0) return;
    this.#rest?.cancel();
    this.#rest = null;
    this.#deps.onEmpty();
  }
}

function keep<Member>(set: Set<Member>, member: Member, isIn: boolean): void {
  if (isIn) set.add(member);
  else set.delete(member);
}
