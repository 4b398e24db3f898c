/** Decides when to open the next stream (docs/spec/control.md §2.6). Pure. */
import { status } from '@grpc/grpc-js';

/** How a stream ended. */
export type StreamEnd =
  /** The connection failed, or the server refused the call. */
  | { readonly kind: 'not-established' }
  | { readonly kind: 'status'; readonly code: number; readonly details: string }
  /** The server ended it without an error. */
  | { readonly kind: 'complete' }
  /** The cause is on this side of the wire. */
  | { readonly kind: 'local' };

/** The label of istio_xds_connection_terminations_total. */
export type TerminationReason = 'ConnectionError' | 'Reconnect' | 'Error' | 'Complete';

/** The next step; `baseMs` goes into the next decision. */
export interface NextAttempt {
  readonly reason: TerminationReason;
  readonly sleepMs: number;
  readonly baseMs: number;
}

/**
 * Backoff before the first failure. Also the pause where upstream has none, so that a server that ends every stream at
 * once is not called in a hot loop.
 */
export const RECONNECT_BASE_MS = 10;
const RECONNECT_MAX_MS = 15_000;

/** A stream that lived this long resets the backoff. */
export const STREAM_SOUND_MS = RECONNECT_MAX_MS;

const UNAVAILABLE: number = status.UNAVAILABLE;

const ORDINARY_CODES: readonly number[] = [
  status.UNKNOWN,
  status.CANCELLED,
  status.DEADLINE_EXCEEDED,
];

/** Decides by the end of the stream and the base so far. */
export function nextAttempt(end: StreamEnd, baseMs: number): NextAttempt {
  const slower = Math.min(RECONNECT_MAX_MS, baseMs * 2);
  switch (end.kind) {
    case 'not-established':
      return { reason: 'ConnectionError', sleepMs: slower, baseMs: slower };
    case 'complete':
      return { reason: 'Complete', sleepMs: RECONNECT_BASE_MS, baseMs: RECONNECT_BASE_MS };
    case 'local':
      return { reason: 'Error', sleepMs: RECONNECT_BASE_MS, baseMs: RECONNECT_BASE_MS };
    case 'status':
      if (isOrdinary(end.code, end.details)) {
        return { reason: 'Reconnect', sleepMs: RECONNECT_BASE_MS, baseMs: RECONNECT_BASE_MS };
      }
      return { reason: 'Error', sleepMs: slower, baseMs: slower };
  }
}

/** True for ends that a healthy server causes, for example by its maximal connection age. */
function isOrdinary(code: number, details: string): boolean {
  if (ORDINARY_CODES.includes(code)) return true;
  return code === UNAVAILABLE && /transport is closing|received prior goaway/i.test(details);
}
