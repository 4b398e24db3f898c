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

/**
 * Failures after which another attempt is safe and may help. Until the 200 has come no byte of the application
 * has left, so only what a second attempt cannot change is left out.
 */
const RETRIABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'UPSTREAM_CONNECT',
  'UPSTREAM_TIMEOUT',
  'UPSTREAM_NETWORK_POLICY',
  'TLS_HANDSHAKE',
  'TUNNEL_CLOSED',
  'NATIVE_SYSCALL',
]);

const RETRIABLE_STATUS = 503;

/** Whether a failed connect may be tried again: never after 400, 401 or a wrong identity. */
export function isConnectRetriable(error: MeshError): boolean {
  return RETRIABLE.has(error.code) || refusedStatus(error) === RETRIABLE_STATUS;
}

/**
 * Runs `attempt` (given its number, from 0) until it succeeds, fails for good or the policy is used up; then
 * throws the last failure. A tunnel that closed under the request is left for a fresh one at once, anything
 * else waits for the backoff.
 */
export async function connectWithRetry<T>(
  attempt: (index: number) => Promise<T>,
  policy: ConnectRetryPolicy,
  deps: { readonly clock: Clock; readonly backoff: Backoff; readonly signal?: AbortSignal },
): Promise<T> {
  const startedMs = deps.clock.monotonic();
  for (let index = 0; ; index += 1) {
    try {
      return await attempt(index);
    } catch (error) {
      const failure = asMeshError(error, 'UPSTREAM_CONNECT');
      const used = deps.clock.monotonic() - startedMs;
      const pauseMs = failure.policy.retry === 'now' ? 0 : deps.backoff.next();
      const spent = index + 1 >= policy.attempts || used + pauseMs >= policy.totalMs;
      if (spent || deps.signal?.aborted === true || !isConnectRetriable(failure)) throw failure;
      if (pauseMs > 0) await deps.clock.sleep(pauseMs, deps.signal);
    }
  }
}
