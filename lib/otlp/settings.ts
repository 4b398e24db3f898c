/** Where telemetry is sent and how, as plain data. */

/** What is exported. */
export type Signal = 'traces' | 'metrics' | 'logs';

/** A collector's endpoint for one signal. */
export interface OtlpTarget {
  /** With the path of the signal, e.g. `https://collector:4318/v1/traces`. */
  readonly url: string;
  /** May be credentials: never logged. */
  readonly headers: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly gzip: boolean;
  /** Paths of PEM files; null = the roots of the runtime, and no certificate of our own. */
  readonly caFile: string | null;
  readonly certificateFile: string | null;
  readonly keyFile: string | null;
}

/** A queue of items on their way to a collector. */
export interface QueueSettings {
  /** More are dropped. */
  readonly maxItems: number;
  /** Most items of one request. */
  readonly batchItems: number;
  /** How long items wait for others. */
  readonly delayMs: number;
}

/** Settings of the export. */
export interface OtlpSettings {
  /** Attributes of everything that is sent, beside those the process knows of itself. */
  readonly resource: Readonly<Record<string, string>>;
  readonly traces: (OtlpTarget & { readonly queue: QueueSettings; readonly share: number }) | null;
  readonly metrics: (OtlpTarget & { readonly intervalMs: number }) | null;
  readonly logs: (OtlpTarget & { readonly queue: QueueSettings }) | null;
}
