import type { Clock } from '../clock/clock.ts';
import { beforeAbort } from '../async/time-limit.ts';
import { assert } from '../errors/assert.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { RouteTable } from '../http/routes.ts';
import { createLogger } from '../log/logger.ts';
import type { LogFormat, Logger } from '../log/logger.ts';
import { MetricRegistry } from '../metrics/registry.ts';
import type { TelemetryExport } from '../otlp/export-port.ts';
import type {
  Actor,
  ActorContext,
  ActorDefinition,
  ActorState,
  Deadline,
  StopReason,
} from './actor.ts';
import { ReadinessGate } from './readiness.ts';

/** The parts of a host that its actors share. */
export interface HostServices {
  readonly node: string | null;
  readonly sharesProcess: boolean;
  readonly clock: Clock;
  readonly logLevel: string;
  readonly logFormat: LogFormat;
  readonly adminRoutes: RouteTable;
  readonly debugRoutes: RouteTable;
  /** Null where telemetry is not exported. */
  readonly exports: TelemetryExport | null;
  /** Called when an actor becomes ready for the first time. */
  ready(): void;
  /** Called when an actor fails; the process then ends. */
  fail(actor: string, error: unknown): void;
  requestShutdown(why: string): void;
  /** See {@link ActorContext}. */
  onMemoryRelease(listener: () => void): void;
}

/** One line of `GET /status`. */
export interface ActorStatus {
  readonly name: string;
  readonly node: string | null;
  readonly pid: number;
  readonly state: ActorState;
  readonly pending: readonly string[];
  readonly startedAt: string | null;
  readonly uptimeSeconds: number;
}

/** Runs one actor in its host: holds its life cycle and makes its context. */
export class HostedActor {
  readonly name: string;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
  readonly #actor: Actor;
  readonly #services: HostServices;
  readonly #readiness = new ReadinessGate();
  #state: ActorState = 'created';
  #startedAt: number | null = null;
  #started = false;
  #stopped: Promise<void> | null = null;

  constructor(definition: ActorDefinition<unknown>, config: unknown, services: HostServices) {
    this.name = definition.name;
    this.#services = services;
    this.#actor = definition.create(config);
    this.log = createLogger({
      actor: this.name,
      node: services.node,
      level: services.logLevel,
      format: services.logFormat,
    });
    this.metrics = new MetricRegistry({ actor: this.name });
    this.#readiness.onChange((pending) => this.#onReadiness(pending));
  }

  get state(): ActorState {
    return this.#state;
  }

  /** Returns the names of what the actor still waits for; `start` until its start has resolved. */
  pending(): readonly string[] {
    if (this.#state === 'created' || (this.#state === 'starting' && !this.#started)) {
      return ['start', ...this.#readiness.pending()].sort();
    }
    return this.#state === 'ready' || this.#state === 'starting'
      ? this.#readiness.pending()
      : [this.#state];
  }

  /** Starts the actor. Rejects with the rejection of its start. */
  async start(): Promise<void> {
    assert(this.#state === 'created', 'an actor starts once');
    this.#state = 'starting';
    this.#startedAt = this.#services.clock.now();
    await this.#actor.start(this.#context());
    this.#started = true;
    this.log.info('actor.started');
    this.#onReadiness(this.#readiness.pending());
  }

  /** Drains until done or the deadline. Logs a failed drain, because the stop follows in any case. */
  async drain(deadline: Deadline): Promise<void> {
    if (this.#state !== 'ready' && this.#state !== 'starting') return;
    this.#state = 'draining';
    this.log.info({ remainingMs: Math.round(deadline.remainingMs()) }, 'actor.draining');
    try {
      const inTime = await beforeAbort(deadline.signal, this.#actor.drain(deadline));
      if (!inTime) this.log.warn('actor.drain-deadline');
    } catch (error) {
      this.log.error({ error: errorText(error) }, 'actor.drain-failed');
    }
  }

  /** Stops once; later calls wait for the same stop. */
  stop(reason: StopReason): Promise<void> {
    this.#stopped ??= this.#stop(reason);
    return this.#stopped;
  }

  status(): ActorStatus {
    const now = this.#services.clock.now();
    return {
      name: this.name,
      node: this.#services.node,
      pid: process.pid,
      state: this.#state,
      pending: this.pending(),
      startedAt: this.#startedAt === null ? null : new Date(this.#startedAt).toISOString(),
      uptimeSeconds: this.#startedAt === null ? 0 : Math.floor((now - this.#startedAt) / 1_000),
    };
  }

  /** Marks the actor as failed, for its status while the process ends. */
  markFailed(): void {
    this.#state = 'failed';
  }

  async #stop(reason: StopReason): Promise<void> {
    if (this.#state === 'created') return;
    try {
      await this.#actor.stop(reason);
    } finally {
      if (this.#state !== 'failed') this.#state = 'stopped';
    }
    this.log.info({ reason }, 'actor.stopped');
  }

  #context(): ActorContext {
    const services = this.#services;
    return {
      actor: this.name,
      node: services.node,
      sharesProcess: services.sharesProcess,
      log: this.log,
      clock: services.clock,
      metrics: this.metrics,
      exports: services.exports,
      readiness: this.#readiness,
      admin: services.adminRoutes.below(`/${this.name}`),
      debug: services.debugRoutes.below('/debug'),
      supervise: (name, work) => {
        work.catch((error: unknown) => {
          if (this.#stopped !== null) return;
          this.log.error({ work: name, error: errorText(error) }, 'actor.work-failed');
          services.fail(this.name, error);
        });
      },
      requestShutdown: (why) => services.requestShutdown(why),
      onMemoryRelease: (listener) => services.onMemoryRelease(listener),
    };
  }

  #onReadiness(pending: readonly string[]): void {
    if (!this.#started) return;
    if (this.#state === 'starting' && pending.length === 0) {
      this.#state = 'ready';
      this.log.info('actor.ready');
      this.#services.ready();
    } else if (this.#state === 'ready') {
      this.log.info({ pending }, pending.length === 0 ? 'actor.ready' : 'actor.not-ready');
    }
  }
}
