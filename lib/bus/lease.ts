import { randomBytes } from 'node:crypto';
import type { Clock } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { LEASE_RENEW_MS, LEASE_TTL_MS } from './limits.ts';
import type { BusMetrics } from './metrics.ts';
import { loadScript, runScript } from './script.ts';
import { onLink } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';

const ACQUIRE = loadScript('lease-acquire');
const RENEW = loadScript('lease-renew');

/** How long a lease lasts, and how often its holder renews it; milliseconds. */
export interface LeaseTimes {
  /** How long a standby waits for a killed holder. */
  readonly ttlMs: number;
  /** A fraction of {@link ttlMs}, so that several renewals may fail before the lease runs out. */
  readonly renewMs: number;
}

/** Part of a lease's time: with less of it left, its holder has missed a renewal or is late with the second. */
const OVERDUE_SHARE = 0.6;

/** Dependencies of a lease. */
export interface LeaseDeps {
  readonly commands: RedisClient;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: BusMetrics;
  readonly times?: LeaseTimes;
}

/**
 * A leadership lease, renewed until it is closed or lost. Every guarded step compares its token, `<fencing number>:<holder>`, so
 * a holder that does not know yet that it lost the lease can write nothing.
 */
export class Lease {
  readonly #name: string;
  /** The Redis key of the lease. The fencing counter has the suffix `:fence`. */
  readonly key: string;
  readonly #deps: LeaseDeps;
  readonly #listeners = new Set<(held: boolean) => void>();
  readonly #stop = new AbortController();
  readonly #loop: Promise<void>;
  readonly #times: LeaseTimes;
  #token: string | null = null;
  /** How long the holder's lease lasts unless it is renewed, as of the last question; milliseconds. */
  #othersRestMs = Infinity;
  readonly #overdueListeners = new Set<(overdue: boolean) => void>();
  #overdue = false;
  #wake: () => void = () => undefined;

  constructor(name: string, key: string, deps: LeaseDeps) {
    this.#name = name;
    this.key = key;
    this.#deps = deps;
    this.#times = deps.times ?? { ttlMs: LEASE_TTL_MS, renewMs: LEASE_RENEW_MS };
    // Asks as soon as Redis is there (again).
    onLink(deps.commands, () => this.#wake());
    this.#loop = this.#run();
  }

  /** True while this process holds the lease. */
  get held(): boolean {
    return this.#token !== null;
  }

  /** The text that guarded steps compare; null while the lease is not held. */
  get token(): string | null {
    return this.#token;
  }

  /** Calls `listener` on every gain (true) and loss (false); the result ends that. */
  onChange(listener: (held: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * Calls `listener` with true when another holder is late to renew, so that a standby can prepare, and with false when that is over:
   * the holder renewed, or the lease has changed hands. The result ends that.
   */
  onOverdue(listener: (overdue: boolean) => void): () => void {
    this.#overdueListeners.add(listener);
    return () => this.#overdueListeners.delete(listener);
  }

  /** Gives the lease back, so that a standby need not wait for its end. */
  async close(): Promise<void> {
    if (this.#stop.signal.aborted) return this.#loop;
    this.#stop.abort(new Error('lease closed'));
    this.#wake();
    await this.#loop;
    const token = this.#token;
    this.#set(null);
    if (token === null) return;
    try {
      await runScript(this.#deps.commands, RENEW, this.#keys(), [token, '0']);
    } catch (error) {
      // The lease runs out by itself.
      this.#deps.log.debug({ lease: this.#name, error: errorText(error) }, 'lease.not-returned');
    }
  }

  async #run(): Promise<void> {
    const { clock, commands } = this.#deps;
    const { signal } = this.#stop;
    const { renewMs, ttlMs } = this.#times;
    const holder = randomBytes(12).toString('hex');
    let provenAt = 0;
    while (!signal.aborted) {
      const askedAt = clock.monotonic();
      try {
        const token = await this.#ask(commands, holder);
        if (token !== null) provenAt = askedAt;
        this.#set(token);
        this.#tellOverdue(token === null && this.#othersRestMs <= ttlMs * OVERDUE_SHARE);
      } catch (error) {
        // Redis is away: the lease stands until it may have run out.
        this.#othersRestMs = Infinity;
        if (clock.monotonic() - provenAt >= ttlMs) this.#set(null);
        this.#deps.log.debug({ lease: this.#name, error: errorText(error) }, 'lease.unreachable');
      }
      const ownRestMs = provenAt + ttlMs - clock.monotonic();
      const restMs = this.#token === null ? this.#othersRestMs : ownRestMs;
      await this.#pause(Math.max(0, Math.min(renewMs, restMs)));
    }
  }

  async #pause(durationMs: number): Promise<void> {
    if (this.#stop.signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const timer = this.#deps.clock.after(durationMs, resolve);
    await promise;
    timer.cancel();
  }

  async #ask(commands: RedisClient, holder: string): Promise<string | null> {
    const lifetime = String(this.#times.ttlMs);
    if (this.#token !== null) {
      const renewed = await runScript(commands, RENEW, this.#keys(), [this.#token, lifetime]);
      if (renewed === 1) return this.#token;
      // Lost: tell listeners before trying to win it again, under a new fencing number.
      this.#set(null);
    }
    const won = await runScript(commands, ACQUIRE, this.#keys(), [holder, lifetime]);
    if (typeof won === 'string') return won;
    // A millisecond later the lease has run out. A lease without an end is none of this program's.
    this.#othersRestMs = typeof won === 'number' && won >= 0 ? won + 1 : Infinity;
    return null;
  }

  #tellOverdue(overdue: boolean): void {
    if (overdue === this.#overdue) return;
    this.#overdue = overdue;
    for (const listener of this.#overdueListeners) listener(overdue);
  }

  #keys(): string[] {
    return [this.key, `${this.key}:fence`];
  }

  #set(token: string | null): void {
    if (token === this.#token) return;
    const changed = (token === null) !== (this.#token === null);
    this.#token = token;
    if (!changed) return;
    const held = token !== null;
    this.#deps.metrics.leaseChanges.inc({ lease: this.#name, to: held ? 'held' : 'lost' });
    this.#deps.log.info({ lease: this.#name, held }, 'lease.changed');
    for (const listener of this.#listeners) listener(held);
  }
}
