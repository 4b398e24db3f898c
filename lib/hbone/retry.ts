import type { Backoff } from '../clock/backoff.ts';
import type { Clock } from '../clock/clock.ts';
import type { ErrorCode } from '../errors/codes.ts';
import { asMeshError } from '../errors/mesh-error.ts';
import type { MeshError } from '../errors/mesh-error.ts';
import { refusedStatus } from './engine.ts';

/** Bounds of connecting: both hold. */
export interface ConnectRetryPolicy {
  readonly attempts: number;
  /** No new attempt begins later than this after the first, milliseconds. */
  readonly totalMs: number;
}

/** One attempt to connect. */
export interface ConnectAttempt {
  /** From 0. */
  readonly index: number;
  /**
   * The peer was asked for the connection: from then on its application may have been reached, and only the peer itself can say
   * that it was not.
   */
  asked: boolean;
  /** The application itself is connected, without a tunnel: a refusal is its own. */
  direct: boolean;
  /** Another endpoint would be asked by the next attempt. */
  elsewhere: boolean;
}

/**
 * Failures after which another attempt is safe and may help, before a peer was asked: only what a second attempt cannot change
 * is left out.
 */
const RETRIABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'UPSTREAM_CONNECT',
  'UPSTREAM_TIMEOUT',
  'UPSTREAM_NETWORK_POLICY',
  'TLS_HANDSHAKE',
  'TUNNEL_CLOSED',
  'NATIVE_SYSCALL',
]);

/** The peer's own words that it did not look at a request (GOAWAY, REFUSED_STREAM). */
const NOT_LOOKED_AT: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['TUNNEL_CLOSED']);

/** The peer's own word that its application could not be connected. ztunnel uses it for nothing that asking again would change. */
const UNREACHABLE_STATUS = 503;

/**
 * Whether a failed connect may be tried again: never after 400, 401 or a wrong identity, and once the peer was asked only
 * when it said that the application was not reached. Its silence says nothing. An application that refuses does so again: only
 * another endpoint can change that.
 */
export function isConnectRetriable(error: MeshError, attempt: ConnectAttempt): boolean {
  const { asked, direct, elsewhere } = attempt;
  // Before it was asked, a gateway on the way has said so of its own.
  if (refusedStatus(error) === UNREACHABLE_STATUS) return elsewhere || !asked;
  if (direct && error.code === 'UPSTREAM_CONNECT') return elsewhere;
  return (asked ? NOT_LOOKED_AT : RETRIABLE).has(error.code);
}

/**
 * Runs `attempt` until it succeeds, fails for good or the policy is used up; then throws the last failure. A tunnel that
 * closed under the request is left for a fresh one at once, anything else waits for the backoff.
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
