/** Leadership by a Lease of coordination.k8s.io. */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import * as z from 'zod';
import { pause } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { KubernetesClient } from './client.ts';
import { resourcePath } from './resource.ts';
import type { ResourceType } from './resource.ts';
import { ifPresent, isCode } from './status.ts';

/** The resource. */
export const LEASES: ResourceType = {
  group: 'coordination.k8s.io',
  versions: ['v1'],
  plural: 'leases',
  namespaced: true,
};

/** Returns a name for this process among the candidates for a lease: `<host>_<random uuid>`. */
export function leaseIdentity(): string {
  return `${hostname()}_${randomUUID()}`;
}

/** The times of a lease in milliseconds. */
export interface LeaseTimes {
  /** Others take the lease this long after they last saw it change. */
  readonly durationMs: number;
  /** The holder stops its work this long after it sent the last write that was answered. */
  readonly renewDeadlineMs: number;
  /** Interval of renewals and of looks at another's lease. */
  readonly retryMs: number;
}

/** The default of client-go. */
export const LEASE_DURATION_MS = 15_000;

/** Returns the times for a duration, in the proportions of client-go. */
export function leaseTimes(durationMs: number): LeaseTimes {
  return {
    durationMs,
    renewDeadlineMs: Math.round((durationMs * 2) / 3),
    retryMs: Math.round((durationMs * 2) / 15),
  };
}

/** A lease to compete for. */
export interface LeaseOptions {
  readonly namespace: string;
  readonly name: string;
  /** See {@link leaseIdentity}. */
  readonly identity: string;
  /** Those of {@link LEASE_DURATION_MS} when left out. */
  readonly times?: LeaseTimes;
}

/** Collaborators of a {@link LeaseCandidate}. */
export interface LeaseDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

const leaseSchema = z.looseObject({
  metadata: z.looseObject({ resourceVersion: z.string() }),
  spec: z
    .looseObject({
      holderIdentity: z.string().nullish(),
      leaseDurationSeconds: z.number().nullish(),
      acquireTime: z.string().nullish(),
      leaseTransitions: z.number().nullish(),
    })
    .default({}),
});
type Lease = z.infer<typeof leaseSchema>;

/** Competes for a lease and does the leader's work while it holds it. */
export class LeaseCandidate {
  readonly #options: LeaseOptions;
  readonly #times: LeaseTimes;
  readonly #deps: LeaseDeps;
  readonly #closing = new AbortController();
  /** The version of the lease last seen, and when: another's clock is not trusted. */
  #seen: { readonly version: string; readonly atMs: number } | null = null;
  #held = false;
  #problem: string | null = null;
  #work: Promise<void> | null = null;

  constructor(options: LeaseOptions, deps: LeaseDeps) {
    this.#options = options;
    this.#times = options.times ?? leaseTimes(LEASE_DURATION_MS);
    this.#deps = deps;
  }

  /** True while this process holds the lease. */
  get held(): boolean {
    return this.#held;
  }

  /**
   * Competes until {@link close}. Each time the lease is held, `lead` runs; its signal aborts when the lease is lost or the
   * candidate is closed, and it must end then. An error of `lead` gives the lease up and rejects the promise.
   */
  run(lead: (signal: AbortSignal) => Promise<void>): Promise<void> {
    this.#work ??= this.#compete(lead);
    return this.#work;
  }

  /** Ends the work and gives the lease up, so that another takes it at once. */
  async close(): Promise<void> {
    this.#closing.abort(new MeshError('KUBERNETES_UNAVAILABLE', 'the lease is closed'));
    // The owner of the work has its error.
    await this.#work?.catch(() => {});
  }

  async #compete(lead: (signal: AbortSignal) => Promise<void>): Promise<void> {
    const { signal } = this.#closing;
    while (!signal.aborted) {
      const sentMs = this.#deps.clock.monotonic();
      const outcome = await this.#tryUntil(sentMs + this.#times.renewDeadlineMs, signal);
      if (outcome === 'held') await this.#hold(lead, sentMs);
      else await pause(this.#deps.clock, this.#jittered(), signal);
    }
  }

  /** `sentMs` is when the write that took the lease was sent. */
  async #hold(lead: (signal: AbortSignal) => Promise<void>, sentMs: number): Promise<void> {
    const { log } = this.#deps;
    const { name, identity } = this.#options;
    this.#held = true;
    log.info({ lease: name, identity }, 'lease.acquired');
    const lost = new AbortController();
    const signal = AbortSignal.any([lost.signal, this.#closing.signal]);
    const ended = Promise.withResolvers<void>();
    const work = lead(signal).finally(() => ended.resolve());
    // Awaited below; a rejection meanwhile is no unhandled one.
    work.catch(() => {});
    try {
      await this.#renew(sentMs, signal, ended.promise);
    } finally {
      this.#held = false;
      lost.abort(new MeshError('KUBERNETES_CONFLICT', `the lease ${name} is lost`));
      // The work's failure is told below; the lease is free in any case.
      await work.catch(() => {});
      log.info({ lease: name, identity }, 'lease.ended');
      await this.#release();
    }
    try {
      await work;
    } catch (error) {
      // Work that its signal has stopped has not failed.
      if (!(signal.aborted && error === signal.reason)) throw error;
    }
  }

  /** Renews until the work ends, the signal aborts or the lease is lost. */
  async #renew(renewedMs: number, signal: AbortSignal, ended: Promise<void>): Promise<void> {
    const { clock } = this.#deps;
    const over = new AbortController();
    void ended.then(() => over.abort());
    const either = AbortSignal.any([signal, over.signal]);
    let lastMs = renewedMs;
    while (!either.aborted) {
      await pause(clock, this.#times.retryMs, either);
      if (either.aborted) return;
      const sentMs = clock.monotonic();
      const deadlineMs = lastMs + this.#times.renewDeadlineMs;
      const outcome = await this.#tryUntil(deadlineMs, either);
      if (outcome === 'held') lastMs = sentMs;
      if (outcome === 'taken') return;
      if (clock.monotonic() >= deadlineMs) return;
    }
  }

  /**
   * Takes or renews the lease. `taken`: another has it. Others count from the write, so an answer after the deadline comes too
   * late: it is `unknown`.
   */
  async #tryUntil(deadlineMs: number, ended: AbortSignal): Promise<'held' | 'taken' | 'unknown'> {
    const limitMs = Math.max(1, Math.round(deadlineMs - this.#deps.clock.monotonic()));
    const signal = AbortSignal.any([ended, AbortSignal.timeout(limitMs)]);
    const { namespace, name } = this.#options;
    const path = resourcePath(LEASES, { namespace, name });
    try {
      const found = await ifPresent(this.#deps.client.get(path, { signal }));
      const lease = found === null ? null : leaseSchema.parse(found);
      if (lease !== null && !this.#mayTake(lease)) return 'taken';
      await this.#write(lease, this.#options.identity, signal);
      // A process that was held up may read an answer that came in time too late.
      if (this.#deps.clock.monotonic() >= deadlineMs) return 'unknown';
      this.#problem = null;
      return 'held';
    } catch (error) {
      if (ended.aborted) return 'unknown';
      // Another was quicker.
      if (isCode(error, 'KUBERNETES_CONFLICT')) return this.#held ? 'unknown' : 'taken';
      const problem = signal.aborted
        ? `no answer within ${limitMs} ms`
        : asMeshError(error, 'KUBERNETES_INVALID').message;
      this.#report(problem);
      return 'unknown';
    }
  }

  #mayTake(lease: Lease): boolean {
    const holder = lease.spec.holderIdentity ?? '';
    if (holder === '' || holder === this.#options.identity) return true;
    const nowMs = this.#deps.clock.monotonic();
    const version = lease.metadata.resourceVersion;
    if (this.#seen?.version !== version) this.#seen = { version, atMs: nowMs };
    const told = lease.spec.leaseDurationSeconds ?? 0;
    const durationMs = told > 0 ? told * 1_000 : this.#times.durationMs;
    return nowMs - this.#seen.atMs >= durationMs;
  }

  async #write(lease: Lease | null, holder: string, signal?: AbortSignal): Promise<void> {
    const { client, clock } = this.#deps;
    const { namespace, name, identity } = this.#options;
    const now = microTime(clock.now());
    const own = lease?.spec.holderIdentity === identity;
    const spec = {
      ...lease?.spec,
      holderIdentity: holder,
      leaseDurationSeconds: holder === '' ? 1 : Math.ceil(this.#times.durationMs / 1_000),
      acquireTime: own ? (lease.spec.acquireTime ?? now) : now,
      renewTime: now,
      leaseTransitions: (lease?.spec.leaseTransitions ?? 0) + (lease === null || own ? 0 : 1),
    };
    const body = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: {
        name,
        namespace,
        ...(lease === null ? {} : { resourceVersion: lease.metadata.resourceVersion }),
      },
      spec,
    };
    if (lease === null) await client.create(resourcePath(LEASES, { namespace }), body, signal);
    else await client.replace(resourcePath(LEASES, { namespace, name }), body, signal);
  }

  /** Gives the lease up when it is still this process's. */
  async #release(): Promise<void> {
    const { namespace, name, identity } = this.#options;
    try {
      // One short attempt: a lease that cannot be given up expires.
      const found = await this.#deps.client.request({
        method: 'GET',
        path: resourcePath(LEASES, { namespace, name }),
        attempts: 1,
        signal: AbortSignal.timeout(this.#times.retryMs),
      });
      const lease = leaseSchema.parse(found);
      if (lease.spec.holderIdentity !== identity) return;
      await this.#write(lease, '', AbortSignal.timeout(this.#times.retryMs));
    } catch (error) {
      this.#report(asMeshError(error, 'KUBERNETES_INVALID').message);
    }
  }

  #report(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#deps.log.warn({ lease: this.#options.name, problem }, 'lease.attempt-failed');
  }

  /** Candidates must not all write at the same moment. */
  #jittered(): number {
    return this.#times.retryMs * (1 + Math.random() * 0.2);
  }
}

/** Returns the format of `MicroTime`, which needs six digits. */
function microTime(ms: number): string {
  return new Date(ms).toISOString().replace('Z', '000Z');
}
