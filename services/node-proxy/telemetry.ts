import type { Clock } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { AccessSettings } from '../../lib/log/access-gate.ts';
import { loggerState, setLogFilter } from '../../lib/log/logger.ts';
import type { LogFormat, Logger } from '../../lib/log/logger.ts';
import type { RegistryFamily } from '../../lib/metrics/registry.ts';
import type { TelemetryExport } from '../../lib/otlp/export-port.ts';
import { ThreadProfiler } from '../../lib/profile/thread-profiler.ts';
import type { ProfileCommand } from '../../lib/profile/thread-profiler.ts';
import type { ConnectionRecord } from '../../workers/listener/protocol/connections.ts';
import type { MetricSample } from '../../workers/listener/protocol/control.ts';
import { ConnectionExports } from './connection-exports.ts';
import type { ListenerPool } from './pool/listener-pool.ts';
import type { ThreadHandle } from './pool/thread-handle.ts';
import type { LoggingControl } from './servers/admin.ts';
import type { ProfiledThread } from './servers/pprof.ts';
import { familiesOf } from './servers/open-metrics.ts';
import type { ThreadTotals } from './servers/thread-totals.ts';
import type { StateThread } from './state-thread/state-thread.ts';

/** Collaborators of {@link Telemetry}. */
export interface TelemetryDeps {
  readonly clock: Clock;
  readonly log: Logger;
  readonly pool: ListenerPool;
  readonly state: StateThread;
  readonly totals: ThreadTotals;
  /** Settings of access lines at the start. */
  readonly accessLog: AccessSettings;
  /** Null when telemetry is not exported. */
  readonly exports: TelemetryExport | null;
  /** A thread left a question unanswered. */
  reportMissed(): void;
}

/** Gathers reports and profiles of all threads of the process, and sets what they log. */
export class Telemetry implements LoggingControl {
  readonly initialFilter: string;
  readonly initialAccessLog: AccessSettings;
  readonly #deps: TelemetryDeps;
  readonly #profiler = new ThreadProfiler();
  readonly #exports: ConnectionExports | null;
  #accessLog: AccessSettings;

  constructor(deps: TelemetryDeps) {
    this.#deps = deps;
    this.initialFilter = loggerState(deps.log).filter;
    this.initialAccessLog = deps.accessLog;
    this.#accessLog = deps.accessLog;
    this.#exports = this.#startExports();
  }

  /** Returns the families of the process itself, with those of the export. */
  async own(registry: {
    families(): Promise<readonly RegistryFamily[]>;
  }): Promise<readonly RegistryFamily[]> {
    const { exports } = this.#deps;
    return [...(await registry.families()), ...((await exports?.families()) ?? [])];
  }

  /** Fetches the connections that threads have kept for export; call it before they end. Idempotent. */
  async close(): Promise<void> {
    await this.#exports?.close();
  }

  get filter(): string {
    return loggerState(this.#deps.log).filter;
  }

  /** Changes the log filter of every thread, also of those made later. */
  setFilter(filter: string): void {
    const { log, pool, state } = this.#deps;
    setLogFilter(log, filter);
    pool.setLogLevel(filter);
    state.setLogLevel(filter);
  }

  get accessLog(): AccessSettings {
    return this.#accessLog;
  }

  /** Changes which access lines every thread writes, also those made later. */
  setAccessLog(settings: AccessSettings): void {
    this.#accessLog = settings;
    this.#deps.pool.setAccessLog(settings);
    this.#deps.log.info({ ...settings }, 'access-log.changed');
  }

  /** Returns the series summed over the listener threads. */
  metrics(): Promise<readonly MetricSample[]> {
    const { totals, pool } = this.#deps;
    return totals.collect(pool.threads.values(), (error) => this.#missed(error));
  }

  /**
   * Returns the live connections of every pod, or with `recent` those that ended lately. A thread that does not answer is counted
   * and left out.
   */
  async connections(
    ...which: Parameters<ThreadHandle['connections']>
  ): Promise<readonly ConnectionRecord[]> {
    const reports = await Promise.all(
      [...this.#deps.pool.threads.values()].map(async (thread) => {
        try {
          return await thread.connections(...which);
        } catch (error) {
          this.#missed(error);
          return [];
        }
      }),
    );
    return reports.flat();
  }

  /** Returns every thread of the process except those of libraries. */
  profiled(): readonly ProfiledThread[] {
    const { pool, state } = this.#deps;
    return [
      { name: 'main', profile: (command) => this.#profiler.run(command) },
      ...(state.own
        ? [{ name: 'state', profile: (command: ProfileCommand) => state.profile(command) }]
        : []),
      ...[...pool.threads.values()].map((thread) => ({
        name: `listener-${thread.number}`,
        profile: thread.profile.bind(thread),
      })),
    ];
  }

  #startExports(): ConnectionExports | null {
    const { clock, pool, exports } = this.#deps;
    if (exports === null) return null;
    exports.addMetrics('node-proxy', async () => familiesOf(await this.metrics()));
    return new ConnectionExports({
      clock,
      to: exports,
      threads: () => pool.threads.values(),
      missed: (error) => this.#missed(error),
    });
  }

  #missed(error: unknown): void {
    this.#deps.reportMissed();
    this.#deps.log.warn({ error: errorText(error) }, 'thread.report-missed');
  }
}

/** Returns the log settings for a thread, which are those of the process. */
export function threadLogging(log: Logger): {
  readonly logLevel: string;
  readonly logFormat: LogFormat;
} {
  const { filter, format } = loggerState(log);
  return { logLevel: filter, logFormat: format };
}
