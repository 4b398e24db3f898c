/** What the data path hands over for export: plain data that crosses threads. */
import type { AccessFields } from '../log/access-log.ts';

/** Which connections a listener thread tells of. */
export interface ConnectionExports {
  /** Access lines, as the access log's own rules let them through. */
  readonly logs: boolean;
  /** Share of traces that become spans; null = none are wanted. */
  readonly traceShare: number | null;
}

/** A connection that ended, or was refused before it was understood. */
export interface ExportedConnection {
  /** The fields of its access line. */
  readonly fields: AccessFields;
  readonly severity: 'info' | 'warn' | 'error';
  /** What the line says: the connection was completed, or failed. */
  readonly message: string;
  /** Epoch milliseconds of its end. */
  readonly endedAtMs: number;
  /** Whether its access line is wanted. */
  readonly log: boolean;
  /** Null where its trace is not sampled, or it was never understood. */
  readonly span: ConnectionSpan | null;
}

/** What a span says beside the access line. */
export interface ConnectionSpan {
  /** Epoch milliseconds. */
  readonly startedAtMs: number;
  readonly direction: 'inbound' | 'outbound';
  /** Of an outbound connection its own ids; of an inbound one those of its parent, null without. */
  readonly trace: { readonly traceId: string; readonly spanId: string } | null;
  /** Where the client wanted to go: the service or workload, and the port. */
  readonly name: string;
  readonly protocol: string;
  readonly responseFlag: string;
  /** The tunnel it went through. */
  readonly tunnel: string | null;
  /** What was done when, milliseconds after the start, in order. */
  readonly steps: readonly (readonly [name: string, afterMs: number])[];
}

/** What a thread could not keep until it was asked. */
export interface ExportDrops {
  readonly logs: number;
  readonly traces: number;
}
