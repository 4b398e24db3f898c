import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { formatHostPort } from '../net/address.ts';
import type { ClientTunnel, OpenRequest, TunnelStream } from './engine.ts';
import {
  HANDSHAKE_TURN_MS,
  MAX_CONNECTING,
  MAX_CONNECTING_PER_KEY,
  MAX_HANDSHAKES,
  MAX_IDLE_TUNNELS,
  MAX_QUEUED_CONNECTS,
  MAX_STREAMS_PER_KEY,
  TUNNEL_WAIT_MS,
} from './limits.ts';
import { PoolEntry } from './pool-entry.ts';
import type { TunnelWait } from './pool-entry.ts';
import { Slots } from '../async/slots.ts';
import type { SlotWait } from '../async/slots.ts';

/** Connections with the same key may share a tunnel (docs/spec/hbone.md §9). */
export interface TunnelKey {
  readonly sourceIdentity: string;
  /** In order. */
  readonly expectedIdentities: readonly string[];
  readonly destinationIp: string;
  readonly destinationPort: number;
  readonly sourceIp: string;
}

/** Bounds of a pool. */
export interface PoolOptions {
  /** Time that a tunnel without streams is kept, milliseconds. */
  readonly idleReleaseMs: number;
  /** Most connections to one peer. */
  readonly maxStreamsPerKey?: number;
  readonly maxIdleTunnels?: number;
  /** Most tunnels in the making at once, to one peer and over all keys. */
  readonly maxConnectingPerKey?: number;
  readonly maxConnecting?: number;
  /** Most handshakes that run at once. */
  readonly maxHandshakes?: number;
  /** Longest wait of a tunnel for its turn, and of a request for room while no tunnel is in the making, milliseconds. */
  readonly waitMs?: number;
}

/** Runs a handshake when it is its turn. */
export type Handshake = <T>(run: () => Promise<T>) => Promise<T>;

/** The pool's way to make tunnels, and its clock. */
export interface PoolDeps {
  /** Makes a tunnel within time limits of its own. A rejection reaches all requests that wait for it. */
  readonly connect: (key: TunnelKey, handshake: Handshake) => Promise<ClientTunnel>;
  readonly clock: Clock;
}

/** Counts since the pool was made, and sizes now. */
export interface PoolStats {
  readonly tunnels: number;
  readonly idle: number;
  readonly keys: number;
  readonly connecting: number;
  readonly created: number;
}

/**
 * The client tunnels of one pod. Every key has its own wait list, so that a peer that is slow to connect delays no other. The tunnels in
 * the making are bounded over all keys; nearly all of them may be silent. Handshakes take the thread's time and have a closer bound. A
 * tunnel returns to use as soon as one of its streams ends.
 */
export class TunnelPool {
  #options: Required<PoolOptions>;
  readonly #whole: Required<PoolOptions>;
  readonly #deps: PoolDeps;
  /** The entries of each peer's address. Few keys share one; a text of the whole key would have to be made for each connection. */
  readonly #entries = new Map<string, KeyedEntry[]>();
  /** Idle tunnels, least recently used first, with the timer that releases them. */
  readonly #idle = new Map<ClientTunnel, Timer>();
  readonly #connects: Slots;
  readonly #handshakes: Slots;
  #created = 0;
  #closed = false;

  constructor(options: PoolOptions, deps: PoolDeps) {
    this.#whole = {
      maxStreamsPerKey: MAX_STREAMS_PER_KEY,
      maxIdleTunnels: MAX_IDLE_TUNNELS,
      maxConnectingPerKey: MAX_CONNECTING_PER_KEY,
      maxConnecting: MAX_CONNECTING,
      maxHandshakes: MAX_HANDSHAKES,
      waitMs: TUNNEL_WAIT_MS,
      ...options,
    };
    this.#options = this.#whole;
    this.#deps = deps;
    this.#connects = new Slots(() => this.#options.maxConnecting, deps.clock);
    this.#handshakes = new Slots(() => this.#options.maxHandshakes, deps.clock);
  }

  /** Divides the bounds among several pools; each pool has at least one of everything. */
  divide(pools: number): void {
    const part = (whole: number): number => Math.max(1, Math.floor(whole / pools));
    const { maxStreamsPerKey, maxIdleTunnels, maxConnectingPerKey, maxConnecting, maxHandshakes } =
      this.#whole;
    this.#options = {
      ...this.#whole,
      maxStreamsPerKey: part(maxStreamsPerKey),
      maxIdleTunnels: part(maxIdleTunnels),
      maxConnectingPerKey: part(maxConnectingPerKey),
      maxConnecting: part(maxConnecting),
      maxHandshakes: part(maxHandshakes),
    };
  }

  get stats(): PoolStats {
    let tunnels = 0;
    let keys = 0;
    for (const { entry } of this.#all()) {
      tunnels += entry.tunnels.size;
      keys += 1;
    }
    return {
      tunnels,
      idle: this.#idle.size,
      keys,
      connecting: this.#connects.taken,
      created: this.#created,
    };
  }

  /**
   * Opens a stream on a tunnel of the key, making one when none has room. Rejects with what connecting or opening
   * failed with, UPSTREAM_TIMEOUT when there is no tunnel in time, UPSTREAM_CONNECT when too many wait already, or TUNNEL_CLOSED
   * when the pool is closed. Once the request is sent (`onTunnel`) the wait has no say any more.
   */
  open(key: TunnelKey, request: OpenRequest, wait: TunnelWait = {}): Promise<TunnelStream> {
    if (this.#closed) {
      return Promise.reject(new MeshError('TUNNEL_CLOSED', 'the tunnel pool is closed'));
    }
    return this.#entry(key).open(request, wait);
  }

  /** Ends every tunnel; streams are reset. */
  close(): void {
    for (const entry of this.#end()) entry.close();
  }

  /** Ends every tunnel once its streams have ended, and all they had to send is sent. Resolves when all are closed. */
  async drain(): Promise<void> {
    await Promise.all(this.#end().map((entry) => entry.drain()));
  }

  #end(): PoolEntry[] {
    this.#closed = true;
    for (const timer of this.#idle.values()) timer.cancel();
    this.#idle.clear();
    return this.#all().map(({ entry }) => entry);
  }

  #entry(key: TunnelKey): PoolEntry {
    const known = this.#entries.get(key.destinationIp);
    const found = known?.find((keyed) => isSameKey(keyed.key, key));
    if (found !== undefined) return found.entry;
    const entry = new PoolEntry({
      clock: this.#deps.clock,
      waitMs: () => this.#options.waitMs,
      peer: formatHostPort(key.destinationIp, key.destinationPort),
      maxStreams: () => this.#options.maxStreamsPerKey,
      maxConnecting: () => this.#options.maxConnectingPerKey,
      connect: (wanted) => this.#connect(key, wanted),
      onChange: (tunnel) => this.#track(tunnel),
      onEmpty: () => this.#drop(entry, key),
    });
    if (known === undefined) this.#entries.set(key.destinationIp, [{ key, entry }]);
    else known.push({ key, entry });
    return entry;
  }

  /** Drops an entry unless it was dropped before: one whose last tunnel drains may have a successor already. */
  #drop(entry: PoolEntry, { destinationIp }: TunnelKey): void {
    const known = this.#entries.get(destinationIp) ?? [];
    const place = known.findIndex((keyed) => keyed.entry === entry);
    if (place === -1) return;
    known.splice(place, 1);
    if (known.length === 0) this.#entries.delete(destinationIp);
  }

  /** All entries, which may be dropped meanwhile. */
  #all(): KeyedEntry[] {
    return [...this.#entries.values()].flat();
  }

  async #connect(key: TunnelKey, wanted: () => boolean): Promise<ClientTunnel | null> {
    const leave = await this.#connects.take(this.#wait('tunnels', MAX_QUEUED_CONNECTS));
    try {
      if (this.#closed) throw new MeshError('TUNNEL_CLOSED', 'the tunnel pool is closed');
      if (!wanted()) return null;
      const tunnel = await this.#deps.connect(key, (run) => this.#handshake(run));
      this.#created += 1;
      return tunnel;
    } finally {
      leave();
    }
  }

  async #handshake<T>(run: () => Promise<T>): Promise<T> {
    // Each waiting handshake holds one of the places to connect.
    const leave = await this.#handshakes.take(this.#wait('handshakes', MAX_CONNECTING));
    const turn = this.#deps.clock.after(HANDSHAKE_TURN_MS, leave);
    try {
      return await run();
    } finally {
      turn.cancel();
      leave();
    }
  }

  #wait(what: string, maxWaiting: number): SlotWait {
    const failure = (why: string): MeshError =>
      new MeshError('UPSTREAM_TIMEOUT', `too many ${what} are under way: ${why}`);
    return { limitMs: this.#options.waitMs, maxWaiting, failure };
  }

  /** Updates the idle list for a tunnel whose streams or state changed. */
  #track(tunnel: ClientTunnel): void {
    this.#idle.get(tunnel)?.cancel();
    this.#idle.delete(tunnel);
    if (tunnel.streams > 0 || !tunnel.usable || this.#closed) return;
    const timer = this.#deps.clock.after(this.#options.idleReleaseMs, () => this.#release(tunnel));
    this.#idle.set(tunnel, timer);
    if (this.#idle.size <= this.#options.maxIdleTunnels) return;
    const [oldest] = this.#idle.keys();
    if (oldest !== undefined) this.#release(oldest);
  }

  #release(tunnel: ClientTunnel): void {
    this.#idle.get(tunnel)?.cancel();
    this.#idle.delete(tunnel);
    // A stream may have been opened meanwhile; draining lets it finish.
    tunnel.drain();
  }
}

interface KeyedEntry {
  readonly key: TunnelKey;
  readonly entry: PoolEntry;
}

function isSameKey(a: TunnelKey, b: TunnelKey): boolean {
  return (
    a.destinationPort === b.destinationPort &&
    a.sourceIp === b.sourceIp &&
    a.sourceIdentity === b.sourceIdentity &&
    a.expectedIdentities.length === b.expectedIdentities.length &&
    a.expectedIdentities.every((identity, index) => identity === b.expectedIdentities[index])
  );
}
