/** The settings of the export, as plain data. */

/** A kind of telemetry. */
export type Signal = 'traces' | 'metrics' | 'logs';

/** A collector's endpoint for one signal. */
export interface OtlpTarget {
  /** With the path of the signal, e.g. `https://collector:4318/v1/traces`. */
  readonly url: string;
  /** May hold credentials: never log them. */
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly gzip: boolean;
  /** Paths of PEM files; null = the roots of the runtime, and no certificate of our own. */
  readonly caFile: string | null;
  readonly certificateFile: string | null;
  readonly keyFile: string | null;
}

/** The settings of a queue. */
export interface QueueSettings {
  /** Items that may wait; more are dropped. */
  readonly maxItems: number;
  /** Most items of one request. */
  readonly batchItems: number;
  /** Time that items wait for others. */
  readonly delayMs: number;
}

/** The settings of all signals. */
export interface OtlpSettings {
  /** Attributes of everything that is sent, in addition to those of the process. */
  readonly resource: Readonly<Record<string, string>>;
  readonly traces: (OtlpTarget & { readonly queue: QueueSettings; readonly share: number }) | null;
  readonly metrics: (OtlpTarget & { readonly intervalMs: number }) | null;
  readonly logs: (OtlpTarget & { readonly queue: QueueSettings }) | null;
}
