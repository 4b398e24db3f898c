/** The export of one process. The SDK is imported only from here on, and this file is loaded only where an endpoint is set. */
import { randomUUID } from 'node:crypto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import type { ResourceMetrics } from '@opentelemetry/sdk-metrics';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import type { Clock, Timer } from '../clock/clock.ts';
import { inTime, withTimeLimit } from '../async/time-limit.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry, RegistryFamily } from '../metrics/registry.ts';
import { connectionData } from './connection-data.ts';
import type { DataOrigin } from './connection-data.ts';
import type { FamilySource, TelemetryExport } from './export-port.ts';
import { ExportQueue } from './export-queue.ts';
import { ExportMetrics } from './export-metrics.ts';
import { COLLECT_TIMEOUT_MS, FLUSH_TIMEOUT_MS } from './limits.ts';
import { metricData } from './metric-data.ts';
import type { ConnectionExports, ExportDrops, ExportedConnection } from './model.ts';
import { logSender, metricSender, spanSender } from './sender.ts';
import type { Sender } from './sender.ts';
import type { OtlpSettings } from './settings.ts';

/** Ports of the export, and facts of its process. */
export interface ExportDependencies {
  readonly clock: Clock;
  readonly log: Logger;
  /** `service.name`, unless a setting overrides it. */
  readonly service: string;
  readonly node: string | null;
}

interface Senders {
  readonly traces: Sender<ReadableSpan[]> | null;
  readonly metrics: Sender<ResourceMetrics> | null;
  readonly logs: Sender<ReadableLogRecord[]> | null;
}

const SCOPE = 'weft';

/** Exports traces, metrics and access lines by OTLP. Only {@link close} waits for a collector, within a bound. */
export class OtlpExport implements TelemetryExport {
  readonly connections: ConnectionExports | null;
  readonly #deps: ExportDependencies;
  readonly #senders: Senders;
  readonly #spans: ExportQueue<ReadableSpan> | null;
  readonly #lines: ExportQueue<ReadableLogRecord> | null;
  readonly #counts: ExportMetrics;
  readonly #origin: DataOrigin;
  readonly #sources = new Map<string, FamilySource[]>();
  readonly #startMs: number;
  #timer: Timer | null = null;
  #exporting: Promise<void> | null = null;
  #last: Promise<void> | null = null;
  #metricsFail = false;

  private constructor(settings: OtlpSettings, deps: ExportDependencies, senders: Senders) {
    const { clock, log } = deps;
    const { traces, metrics, logs } = settings;
    this.#deps = deps;
    this.#senders = senders;
    this.#startMs = clock.now();
    this.#origin = { resource: resourceOf(settings, deps), scope: { name: SCOPE } };
    this.#counts = new ExportMetrics({
      traces: () => this.#spans?.length ?? null,
      logs: () => this.#lines?.length ?? null,
    });
    const shared = { clock, log, counts: this.#counts };
    const { traces: spans, logs: lines } = senders;
    this.#spans =
      traces === null || spans === null
        ? null
        : new ExportQueue('traces', traces.queue, {
            ...shared,
            send: (items) => spans.send([...items]),
          });
    this.#lines =
      logs === null || lines === null
        ? null
        : new ExportQueue('logs', logs.queue, {
            ...shared,
            send: (items) => lines.send([...items]),
          });
    const traceShare = traces === null || traces.share === 0 ? null : traces.share;
    this.connections =
      logs === null && traceShare === null ? null : { logs: logs !== null, traceShare };
    if (metrics !== null) {
      this.#timer = clock.every(metrics.intervalMs, () => this.#tick());
    }
    this.addMetrics('otlp', () => this.families());
  }

  /** Throws CONFIG_INVALID for files that cannot be read. */
  static async start(settings: OtlpSettings, deps: ExportDependencies): Promise<OtlpExport> {
    const { traces, metrics, logs } = settings;
    const senders = {
      traces: traces === null ? null : await spanSender(traces, deps.clock),
      metrics: metrics === null ? null : await metricSender(metrics, deps.clock),
      logs: logs === null ? null : await logSender(logs, deps.clock),
    };
    deps.log.info(
      {
        traces: traces === null ? 'none' : `${traces.share * 100}% to ${shownUrl(traces.url)}`,
        metrics: metrics === null ? 'none' : shownUrl(metrics.url),
        logs: logs === null ? 'none' : shownUrl(logs.url),
      },
      'otlp.started',
    );
    return new OtlpExport(settings, deps, senders);
  }

  add(connections: readonly ExportedConnection[], dropped: ExportDrops): void {
    this.#lines?.dropped(dropped.logs, 'thread-full');
    this.#spans?.dropped(dropped.traces, 'thread-full');
    const data = connections.map((connection) => connectionData(connection, this.#origin));
    this.#spans?.add(data.flatMap(({ span }) => (span === null ? [] : [span])));
    this.#lines?.add(data.flatMap(({ log }) => (log === null ? [] : [log])));
  }

  addMetrics(scope: string, collect: FamilySource): void {
    this.#sources.set(scope, [...(this.#sources.get(scope) ?? []), collect]);
  }

  /** The export's own counters. */
  get metrics(): MetricRegistry {
    return this.#counts.registry;
  }

  families(): Promise<readonly RegistryFamily[]> {
    return this.#counts.families();
  }

  /** Collects and sends metrics for the last time, before the actors stop. */
  async lastMetrics(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    // close() waits for the request.
    const { collected, sent } = this.#exportMetrics();
    this.#last = sent;
    await collected;
  }

  /** Sends the remaining items within {@link FLUSH_TIMEOUT_MS}. Returns false when a request is still open then. */
  async close(): Promise<boolean> {
    this.#timer?.cancel();
    await Promise.all([
      this.#spans?.close(FLUSH_TIMEOUT_MS),
      this.#lines?.close(FLUSH_TIMEOUT_MS),
      inTime(this.#deps.clock, FLUSH_TIMEOUT_MS, Promise.all([this.#exporting, this.#last])),
    ]);
    const { traces, metrics, logs } = this.#senders;
    return ![traces, metrics, logs].some((sender) => sender?.busy === true);
  }

  /** Starts an export unless one is open. Values are totals, so the next export makes up for one that is left out. */
  #tick(): void {
    if (this.#exporting !== null) return;
    this.#exporting = this.#exportMetrics().sent.finally(() => (this.#exporting = null));
  }

  #exportMetrics(): { readonly collected: Promise<void>; readonly sent: Promise<void> } {
    const { metrics } = this.#senders;
    if (metrics === null) return { collected: Promise.resolve(), sent: Promise.resolve() };
    const collecting = this.#collect();
    const sent = collecting.then(async (data) => {
      const points = data.scopeMetrics.flatMap((scope) =>
        scope.metrics.map((metric) => metric.dataPoints.length),
      );
      this.#report(
        await metrics.send(data),
        points.reduce((sum, count) => sum + count, 0),
      );
    });
    return { collected: collecting.then(() => undefined), sent };
  }

  #report(result: Awaited<ReturnType<Sender<ResourceMetrics>['send']>>, points: number): void {
    const signal = 'metrics';
    const { log } = this.#deps;
    if (result.kind === 'sent') {
      this.#counts.sent(signal, points);
      if (this.#metricsFail) log.info({ signal }, 'otlp.export-resumed');
      this.#metricsFail = false;
      return;
    }
    const { kind, error } = result;
    this.#counts.failed(signal);
    if (!this.#metricsFail) log.warn({ signal, kind, error }, 'otlp.export-failed');
    this.#metricsFail = true;
  }

  /** Collects all sources. A source that fails is logged and left out. */
  async #collect(): Promise<ResourceMetrics> {
    const times = { startMs: this.#startMs, nowMs: this.#deps.clock.now() };
    const scopeMetrics = await Promise.all(
      [...this.#sources].map(async ([scope, sources]) => {
        const families = await Promise.all(sources.map((source) => this.#ask(scope, source)));
        return {
          scope: { name: `${SCOPE}/${scope}` },
          metrics: metricData(families.flat(), times),
        };
      }),
    );
    return {
      resource: this.#origin.resource,
      scopeMetrics: scopeMetrics.filter(({ metrics }) => metrics.length > 0),
    };
  }

  async #ask(scope: string, source: FamilySource): Promise<readonly RegistryFamily[]> {
    try {
      const what = 'no metrics';
      const limitMs = COLLECT_TIMEOUT_MS;
      return await withTimeLimit(this.#deps.clock, source(), {
        limitMs,
        what,
        release: () => undefined,
      });
    } catch (error) {
      this.#deps.log.warn({ scope, error: errorText(error) }, 'otlp.metrics-missing');
      return [];
    }
  }
}

function resourceOf(
  { resource }: OtlpSettings,
  { service, node }: ExportDependencies,
): DataOrigin['resource'] {
  return resourceFromAttributes({
    'service.name': service,
    'service.instance.id': randomUUID(),
    'process.pid': process.pid,
    ...(node === null ? {} : { 'k8s.node.name': node }),
    ...resource,
  });
}

/** Returns the URL without its query, which may hold a key. */
function shownUrl(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname}`;
}
