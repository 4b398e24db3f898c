import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import type { ClientTunnel, OpenRequest, TunnelStream } from './engine.ts';
import { MAX_WAITERS_PER_KEY } from './limits.ts';

/** How a request waits for a tunnel. */
export interface TunnelWait {
  /** Tunnels that are not used while the key may have others. */
  readonly avoid?: ReadonlySet<ClientTunnel>;
  /** Without a tunnel by then it gives up, whatever is under way, and is not sent; null: when what is under way has failed. */
  readonly limitMs?: number | null;
}

/** What the pool gives one key. */
export interface PoolEntryDeps {
  readonly clock: Clock;
  /** Who it is, in words. */
  readonly peer: string;
  readonly maxTunnels: () => number;
  /** Makes a tunnel when it is its turn, unless it is not `wanted` any more by then. */
  readonly connect: (wanted: () => boolean) => Promise<ClientTunnel>;
  /** A tunnel has begun or ended a stream, or its life. */
  readonly onChange: (tunnel: ClientTunnel) => void;
  /** Nothing is left under the key. */
  readonly onEmpty: () => void;
}

const NONE: ReadonlySet<ClientTunnel> = new Set();

interface Waiter {
  readonly request: OpenRequest;
  readonly avoid: ReadonlySet<ClientTunnel>;
  /** Ends the wait. */
  readonly timer: Timer | null;
  readonly resolve: (stream: Promise<TunnelStream>) => void;
  readonly reject: (error: MeshError) => void;
}

/** The tunnels to one peer and the requests that wait for one. */
export class PoolEntry {
  readonly tunnels = new Set<ClientTunnel>();
  readonly #deps: PoolEntryDeps;
  #waiters: Waiter[] = [];
  #connecting = 0;
  /** Streams a tunnel is taken to carry, for the number of tunnels to make at once. */
  #streamsPerTunnel = 1;
  #closed: 'immediate' | 'graceful' | null = null;

  constructor(deps: PoolEntryDeps) {
    this.#deps = deps;
  }

  /** Opens a stream on a tunnel with room, waiting for one if need be; not on one to avoid while there may be others. */
  open(request: OpenRequest, { avoid = NONE, limitMs = null }: TunnelWait): Promise<TunnelStream> {
    const tunnel = this.#withRoom(avoid);
    if (tunnel !== null) return this.#start(tunnel, request);
    if (this.#waiters.length >= MAX_WAITERS_PER_KEY) {
      return Promise.reject(
        new MeshError(
          'TUNNEL_CLOSED',
          `${MAX_WAITERS_PER_KEY} connections already wait for this peer`,
        ),
      );
    }
    return new Promise((resolve, reject) => {
      const timer =
        limitMs === null
          ? null
          : this.#deps.clock.after(limitMs, () => this.#giveUp(waiter, limitMs));
      const waiter: Waiter = { request, avoid, timer, resolve, reject };
      this.#waiters.push(waiter);
      this.#connectIfNeeded();
    });
  }

  close(mode: 'immediate' | 'graceful'): void {
    this.#closed = mode;
    this.#failWaiters(new MeshError('TUNNEL_CLOSED', 'the tunnel pool is closed'));
    for (const tunnel of this.tunnels) end(tunnel, mode);
  }

  #withRoom(avoid: ReadonlySet<ClientTunnel> | null): ClientTunnel | null {
    let avoided: ClientTunnel | null = null;
    for (const tunnel of this.tunnels) {
      if (tunnel.capacity === 0) continue;
      if (avoid?.has(tunnel) !== true) return tunnel;
      avoided ??= tunnel;
    }
    // At the limit there will be no other to wait for.
    return this.tunnels.size >= this.#deps.maxTunnels() ? avoided : null;
  }

  #start(tunnel: ClientTunnel, request: OpenRequest): Promise<TunnelStream> {
    request.onTunnel?.(tunnel);
    const opened = tunnel.open(request);
    this.#deps.onChange(tunnel);
    return opened;
  }

  #connectIfNeeded(): void {
    const wanted = Math.ceil(this.#waiters.length / this.#streamsPerTunnel);
    // Until the first tunnel shows how much it carries, one is enough to learn from.
    const allowed = this.tunnels.size === 0 ? 1 : this.#deps.maxTunnels() - this.tunnels.size;
    while (this.#connecting < Math.min(wanted, allowed)) {
      this.#connecting += 1;
      this.#deps
        .connect(() => this.#waiters.length > 0)
        .then(
          (tunnel) => {
            this.#connecting -= 1;
            this.#add(tunnel);
          },
          (error: unknown) => {
            this.#connecting -= 1;
            // They all wait for the same peer; each decides for itself whether to try again.
            this.#failWaiters(asMeshError(error, 'UPSTREAM_CONNECT'));
            this.#dropIfEmpty();
          },
        );
    }
  }

  #add(tunnel: ClientTunnel): void {
    if (this.#closed !== null) {
      end(tunnel, this.#closed);
      return;
    }
    this.#streamsPerTunnel = Math.max(1, tunnel.capacity);
    this.tunnels.add(tunnel);
    tunnel.onChange(() => {
      if (!tunnel.usable) this.tunnels.delete(tunnel);
      this.#deps.onChange(tunnel);
      this.#serveWaiters();
      this.#dropIfEmpty();
    });
    this.#deps.onChange(tunnel);
    this.#serveWaiters();
  }

  #serveWaiters(): void {
    for (let index = 0; this.#withRoom(null) !== null;) {
      const waiter = this.#waiters[index];
      if (waiter === undefined) break;
      const tunnel = this.#withRoom(waiter.avoid);
      if (tunnel === null) {
        index += 1;
        continue;
      }
      this.#waiters.splice(index, 1);
      waiter.timer?.cancel();
      waiter.resolve(this.#start(tunnel, waiter.request));
    }
    if (this.#waiters.length > 0) this.#connectIfNeeded();
  }

  #failWaiters(error: MeshError): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) {
      waiter.timer?.cancel();
      waiter.reject(error);
    }
  }

  /** Takes a request back that is not sent yet; what was begun for it goes on, for others. */
  #giveUp(waiter: Waiter, limitMs: number): void {
    this.#waiters = this.#waiters.filter((other) => other !== waiter);
    const why = `no tunnel to ${this.#deps.peer} within ${limitMs} ms`;
    waiter.reject(new MeshError('UPSTREAM_TIMEOUT', why));
    this.#dropIfEmpty();
  }

  #dropIfEmpty(): void {
    if (this.tunnels.size === 0 && this.#connecting === 0 && this.#waiters.length === 0) {
      this.#deps.onEmpty();
    }
  }
}

function end(tunnel: ClientTunnel, mode: 'immediate' | 'graceful'): void {
  if (mode === 'immediate') tunnel.destroy();
  else tunnel.drain();
}
