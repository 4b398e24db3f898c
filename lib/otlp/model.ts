/** The data that listener threads hand over for export: plain data that crosses threads. */
import type { AccessFields } from '../log/access-log.ts';

/** Selects the connections that a listener thread reports. */
export interface ConnectionExports {
  /** Access lines, as the access log's own rules let them through. */
  readonly logs: boolean;
  /** Share of traces that become spans; null = none. */
  readonly traceShare: number | null;
}

/** A connection that ended, or that was refused early. */
export interface ExportedConnection {
  /** The fields of its access line. */
  readonly fields: AccessFields;
  readonly severity: 'info' | 'warn' | 'error';
  /** The message of the line. */
  readonly message: string;
  /** Epoch milliseconds of its end. */
  readonly endedAtMs: number;
  /** Whether its access line is wanted. */
  readonly log: boolean;
  /** Null where its trace is not sampled, or it was refused early. */
  readonly span: ConnectionSpan | null;
}

/** The facts of a span that are not in the access line. */
export interface ConnectionSpan {
  /** Epoch milliseconds. */
  readonly startedAtMs: number;
  readonly direction: 'inbound' | 'outbound';
  /** The ids of an outbound connection, or of the parent of an inbound one; null without. */
  readonly trace: { readonly traceId: string; readonly spanId: string } | null;
  /** The destination: the service or workload, and the port. */
  readonly name: string;
  readonly protocol: string;
  readonly responseFlag: string;
  /** The tunnel that carried it. */
  readonly tunnel: string | null;
  /** The steps in order, each with its time in milliseconds after the start. */
  readonly steps: readonly (readonly [name: string, afterMs: number])[];
}

/** Counts of what a thread dropped before it was asked. */
export interface ExportDrops {
  readonly logs: number;
  readonly traces: number;
}

/** Seconds and nanoseconds since the epoch, the SDK's form of time. */
export type HighTime = [seconds: number, nanoseconds: number];

const MS_PER_SECOND = 1_000;
const NS_PER_MS = 1_000_000;

/** Converts epoch milliseconds, with fractions, to {@link HighTime}. */
export function hrTime(epochMs: number): HighTime {
  const seconds = Math.floor(epochMs / MS_PER_SECOND);
  return [seconds, Math.round((epochMs - seconds * MS_PER_SECOND) * NS_PER_MS)];
}
