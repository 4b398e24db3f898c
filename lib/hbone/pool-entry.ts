import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import type { ClientTunnel, OpenRequest, TunnelStream } from './engine.ts';
import { BARREN_REST_MS, MAX_FAILED_CONNECTS, MAX_WAITERS_PER_KEY } from './limits.ts';

/** How a request waits for a tunnel. */
export interface TunnelWait {
  /** Tunnels that are not used while the key may have others. */
  readonly avoid?: ReadonlySet<ClientTunnel>;
  /**
   * Without a tunnel by then it gives up, whatever is under way, and is not sent. Null: it has the pool's time, and as long as
   * a tunnel is being made besides, so that it learns why that fails.
   */
  readonly limitMs?: number | null;
}

/** What the pool gives one key. */
export interface PoolEntryDeps {
  readonly clock: Clock;
  /** Who it is, in words. */
  readonly peer: string;
  /** Connections that tunnels may be made for. */
  readonly maxStreams: () => number;
  /** Tunnels that may be made at once. */
  readonly maxConnecting: () => number;
  readonly waitMs: () => number;
  /** Makes a tunnel when it is its turn; null if it is not `wanted` any more by then. */
  readonly connect: (wanted: () => boolean) => Promise<ClientTunnel | null>;
  /** A tunnel has begun or ended a stream, or its life. */
  readonly onChange: (tunnel: ClientTunnel) => void;
  /** Nothing is left under the key. */
  readonly onEmpty: () => void;
}

const NONE: ReadonlySet<ClientTunnel> = new Set();

interface Waiter {
  readonly request: OpenRequest;
  readonly avoid: ReadonlySet<ClientTunnel>;
  readonly waitMs: number;
  /** Does not wait for a tunnel that is being made when its time is up. */
  readonly firm: boolean;
  readonly timer: Timer;
  /** Its time is up. */
  late: boolean;
  readonly resolve: (stream: Promise<TunnelStream>) => void;
  readonly reject: (error: MeshError) => void;
}

/** The tunnels to one peer and the requests that wait for one. Nothing done for one request looks at every tunnel. */
export class PoolEntry {
  /** Those that are in use. */
  readonly tunnels = new Set<ClientTunnel>();
  /** Of these, those that took another stream when they were last looked at. */
  readonly #roomy = new Set<ClientTunnel>();
  /** Of these, those whose peer takes nothing though nothing is on them. */
  readonly #barren = new Set<ClientTunnel>();
  /** Those that take no more streams and have some yet. */
  readonly #leaving = new Set<ClientTunnel>();
  readonly #deps: PoolEntryDeps;
  readonly #waiters = new Set<Waiter>();
  #connecting = 0;
  /** Tunnels that failed to be made since the last that was. */
  #failed = 0;
  /** Runs while no tunnel is made, as one was let go whose peer takes nothing on it. */
  #rest: Timer | null = null;
  /** Streams a tunnel is taken to carry, for the number of tunnels to make. */
  #streamsPerTunnel = 1;
  #closed = false;

  constructor(deps: PoolEntryDeps) {
    this.#deps = deps;
  }

  /** Opens a stream on a tunnel with room, waiting for one if need be; not on one to avoid while there may be others. */
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

  close(): void {
    this.#closed = true;
    this.#rest?.cancel();
    this.#failWaiters(new MeshError('TUNNEL_CLOSED', 'the tunnel pool is closed'));
    for (const tunnel of [...this.tunnels, ...this.#leaving]) tunnel.destroy();
  }

  #withRoom(avoid: ReadonlySet<ClientTunnel> | null): ClientTunnel | null {
    let avoided: ClientTunnel | null = null;
    for (const tunnel of this.#roomy) {
      if (tunnel.capacity === 0) this.#roomy.delete(tunnel);
      else if (avoid?.has(tunnel) !== true) return tunnel;
      else avoided ??= tunnel;
    }
    // At the limit there will be no other to wait for.
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

  /** A tunnel was not made for want of requests; one may have come since, and have counted on it. */
  #unwanted(): void {
    if (this.#waiters.size > 0) this.#connectIfNeeded();
    this.#dropIfEmpty();
  }

  /**
   * One tunnel could not be made. Others in the making may still serve everyone who waits, and a peer with tunnels in use gets
   * another in its place. The requests fail when neither is left; each decides for itself whether to try again.
   */
  #connectFailed(error: MeshError): void {
    this.#failed += 1;
    const isAlive = this.tunnels.size > 0 && error.policy.retry !== 'never';
    if (isAlive && this.#failed <= MAX_FAILED_CONNECTS) {
      // Those whose time was up waited for this one alone.
      if (this.#connecting === 0) this.#failWaiters(error, (waiter) => waiter.late);
      this.#connectIfNeeded();
    } else if (this.#connecting === 0) {
      this.#failed = 0;
      this.#failWaiters(error);
    }
  }

  /** How many tunnels may be in the making. */
  #allowed(): number {
    // Until the first tunnel shows how much it carries, one is enough to learn from.
    if (this.tunnels.size === 0) return 1;
    // A peer that takes nothing on any of its tunnels takes nothing on another one either.
    if (this.#barren.size === this.tunnels.size || this.#rest !== null) return 0;
    return Math.min(this.#deps.maxConnecting(), this.#maxTunnels - this.tunnels.size);
  }

  #add(tunnel: ClientTunnel): void {
    if (this.#closed) {
      tunnel.destroy();
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

  /** Keeps the lists in step with a tunnel; what its peer lets one carry may become known, and change, while it is in use. */
  #note(tunnel: ClientTunnel): void {
    const { usable, streams, capacity } = tunnel;
    // One that carries nothing says nothing of what the others do.
    if (usable && streams + capacity > 0) this.#streamsPerTunnel = streams + capacity;
    keep(this.tunnels, tunnel, usable);
    keep(this.#roomy, tunnel, capacity > 0);
    keep(this.#barren, tunnel, usable && streams === 0 && capacity === 0);
    keep(this.#leaving, tunnel, !usable && streams > 0);
  }

  /** Where others carry something, those that carry nothing are of no use; the next is made after a rest, lest it be one more. */
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

  /** Takes a request back that is not sent yet; what was begun for it goes on, for others. */
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
