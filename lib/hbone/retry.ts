import type { Backoff } from '../clock/backoff.ts';
import type { Clock } from '../clock/clock.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { asMeshError } from '../errors/mesh-error.ts';
import type { MeshError } from '../errors/mesh-error.ts';
import { refusedStatus } from './engine.ts';

/** Bounds of repeated connects; both hold. */
export interface ConnectRetryPolicy {
  readonly attempts: number;
  /** Latest begin of an attempt after the first one, milliseconds. */
  readonly totalMs: number;
}

/** One attempt to connect. */
export interface ConnectAttempt {
  /** Counts from 0. */
  readonly index: number;
  /**
   * Whether the request was sent to the peer. From then on the peer's application may have been reached, and only the peer can deny
   * it.
   */
  asked: boolean;
  /** Whether the attempt connects the application itself, without a tunnel. A refusal is then the application's. */
  direct: boolean;
  /** Whether the next attempt would ask another endpoint. */
  elsewhere: boolean;
}

/**
 * Failures before the request was sent after which another attempt may help. The set leaves out only failures that a second attempt
 * cannot change.
 */
const RETRIABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'UPSTREAM_CONNECT',
  'UPSTREAM_TIMEOUT',
  'UPSTREAM_NETWORK_POLICY',
  'TLS_HANDSHAKE',
  'TUNNEL_CLOSED',
  // The gateway of another network was asked for a way only.
  'TUNNEL_RESET',
  'NATIVE_SYSCALL',
]);

/** Failures by which the peer states that it did not process a request (GOAWAY, REFUSED_STREAM). */
const NOT_LOOKED_AT: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['TUNNEL_CLOSED']);

/** The status by which a peer states that it could not connect its application. ztunnel uses it for nothing that a retry would change. */
const UNREACHABLE_STATUS = 503;

/**
 * Whether a failed connect may be tried again. It never may after 400, 401 or a wrong identity. After the request was sent it may only
 * if the peer said that the application was not reached; silence proves nothing. An application that refuses does so again, so then
 * only another endpoint is tried.
 */
export function isConnectRetriable(error: MeshError, attempt: ConnectAttempt): boolean {
  const { asked, direct, elsewhere } = attempt;
  // A 503 before the request was sent comes from a gateway on the way.
  if (refusedStatus(error) === UNREACHABLE_STATUS) return elsewhere || !asked;
  if (direct && error.code === 'UPSTREAM_CONNECT') return elsewhere;
  return (asked ? NOT_LOOKED_AT : RETRIABLE).has(error.code);
}

/**
 * Runs `attempt` until it succeeds, fails for good or the policy is used up, and then throws the last failure. After a tunnel that
 * closed under the request it tries again at once, after any other failure it waits for the backoff.
 */
export async function connectWithRetry<T>(
  attempt: (attempt: ConnectAttempt) => Promise<T>,
  policy: ConnectRetryPolicy,
  deps: { readonly clock: Clock; readonly backoff: Backoff },
): Promise<T> {
  const startedMs = deps.clock.monotonic();
  for (let index = 0; ; index += 1) {
    const now: ConnectAttempt = { index, asked: false, direct: false, elsewhere: false };
    try {
      return await attempt(now);
    } catch (error) {
      const failure = asMeshError(error, 'UPSTREAM_CONNECT');
      const used = deps.clock.monotonic() - startedMs;
      const pauseMs = failure.policy.retry === 'now' ? 0 : deps.backoff.next();
      const spent = index + 1 >= policy.attempts || used + pauseMs >= policy.totalMs;
      if (spent || !isConnectRetriable(failure, now)) throw failure;
      if (pauseMs > 0) await deps.clock.sleep(pauseMs);
    }
  }
}
