/** Wraps the SDK's exporters, which encode, send and retry. */
import { readFile } from 'node:fs/promises';
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-proto';
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import type { ReadableLogRecord } from '@opentelemetry/sdk-logs';
import type { ResourceMetrics } from '@opentelemetry/sdk-metrics';
import type { ReadableSpan } from '@opentelemetry/sdk-trace';
import type { Clock } from '../clock/clock.ts';
import { withTimeLimit } from '../async/time-limit.ts';
import { configInvalid } from '../config/define-config.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { SendResult } from './export-queue.ts';
import { EXPORT_GRACE_MS } from './limits.ts';
import type { OtlpTarget } from './settings.ts';

/** The common interface of the SDK's exporters. */
interface SdkExporter<Data> {
  export(
    data: Data,
    done: (result: { readonly code: number; readonly error?: Error }) => void,
  ): void;
  shutdown(): Promise<void>;
}

type ExporterOptions = NonNullable<ConstructorParameters<typeof OTLPTraceExporter>[0]>;

/** ExportResultCode.SUCCESS of the SDK. */
const SUCCESS = 0;

/** Sends data of one signal to a collector. */
export class Sender<Data> {
  readonly #exporter: SdkExporter<Data>;
  readonly #limitMs: number;
  readonly #clock: Clock;
  #out = 0;

  constructor(exporter: SdkExporter<Data>, { timeoutMs }: OtlpTarget, clock: Clock) {
    this.#exporter = exporter;
    this.#limitMs = timeoutMs + EXPORT_GRACE_MS;
    this.#clock = clock;
  }

  /** Whether requests are open. The SDK cannot cancel them, and they keep the process alive. */
  get busy(): boolean {
    return this.#out > 0;
  }

  /** Never rejects. */
  async send(data: Data): Promise<SendResult> {
    const limitMs = this.#limitMs;
    const what = 'the collector did not answer';
    try {
      const work = this.#export(data);
      return await withTimeLimit(this.#clock, work, { limitMs, what, release: () => undefined });
    } catch (error) {
      return { kind: 'failed', error: errorText(error) };
    }
  }

  #export(data: Data): Promise<SendResult> {
    const { promise, resolve } = Promise.withResolvers<SendResult>();
    this.#out += 1;
    this.#exporter.export(data, ({ code, error }) => {
      this.#out -= 1;
      resolve(code === SUCCESS ? { kind: 'sent' } : failure(error));
    });
    return promise;
  }
}

/** An error with an HTTP status is final; the SDK reports errors that may be retried without a status. */
function failure(error: Error | undefined): SendResult {
  const status = error !== undefined && 'code' in error ? error.code : null;
  const text = error === undefined ? 'no reason given' : errorText(error);
  return typeof status === 'number'
    ? { kind: 'refused', error: `HTTP ${status} ${text}` }
    : { kind: 'failed', error: text };
}

/** Makes a sender of spans. Throws CONFIG_INVALID for files that cannot be read. */
export async function spanSender(
  target: OtlpTarget,
  clock: Clock,
): Promise<Sender<ReadableSpan[]>> {
  return new Sender(new OTLPTraceExporter(await exporterOptions(target)), target, clock);
}

/** Makes a sender of log records. Throws like {@link spanSender}. */
export async function logSender(
  target: OtlpTarget,
  clock: Clock,
): Promise<Sender<ReadableLogRecord[]>> {
  return new Sender(new OTLPLogExporter(await exporterOptions(target)), target, clock);
}

/** Makes a sender of metrics. Throws like {@link spanSender}. */
export async function metricSender(
  target: OtlpTarget,
  clock: Clock,
): Promise<Sender<ResourceMetrics>> {
  return new Sender(new OTLPMetricExporter(await exporterOptions(target)), target, clock);
}

async function exporterOptions(target: OtlpTarget): Promise<ExporterOptions> {
  const [ca, cert, key] = await Promise.all([
    pem('CERTIFICATE', target.caFile),
    pem('CLIENT_CERTIFICATE', target.certificateFile),
    pem('CLIENT_KEY', target.keyFile),
  ]);
  return {
    url: target.url,
    headers: { ...target.headers },
    timeoutMillis: target.timeoutMs,
    // The enum is in a package that only the SDK itself depends on; these are its values.
    compression: (target.gzip ? 'gzip' : 'none') as NonNullable<ExporterOptions['compression']>,
    userAgent: 'weft',
    httpAgentOptions: {
      keepAlive: true,
      ...(ca === null ? {} : { ca }),
      ...(cert === null ? {} : { cert }),
      ...(key === null ? {} : { key }),
    },
  };
}

async function pem(kind: string, path: string | null): Promise<string | null> {
  if (path === null) return null;
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw configInvalid([`OTEL_EXPORTER_OTLP_…${kind}: ${errorText(error)}`]);
  }
  if (text.includes('-----BEGIN ')) return text;
  throw configInvalid([`OTEL_EXPORTER_OTLP_…${kind}: ${path} holds no PEM`]);
}
