import { MeshError } from '../errors/mesh-error.ts';
import type { Clock } from '../clock/clock.ts';

/** A time limit. */
export interface TimeLimit<T> {
  /** Milliseconds; null = no limit. */
  readonly limitMs: number | null;
  /** Names the missing result, for the error. */
  readonly what: string;
  /** Releases a result that came too late. */
  readonly release: (late: T) => void;
}

/** Settles like `work`, or rejects with UPSTREAM_TIMEOUT after the limit; releases a later result. */
export async function withTimeLimit<T>(
  clock: Clock,
  work: Promise<T>,
  { limitMs, what, release }: TimeLimit<T>,
): Promise<T> {
  if (limitMs === null) return work;
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = clock.after(limitMs, () => {
    reject(new MeshError('UPSTREAM_TIMEOUT', `${what} within ${limitMs} ms`));
    // The caller has its failure already.
    work.then(release, () => {});
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.cancel();
  }
}

/** Returns true when `work` resolves within `limitMs`, false when it does not. Rejects when `work` does in time. */
export function inTime(clock: Clock, limitMs: number, work: Promise<unknown>): Promise<boolean> {
  return before(work, (expire) => {
    const timer = clock.after(limitMs, expire);
    return () => timer.cancel();
  });
}

/** Like {@link inTime}, until the signal aborts. */
export function beforeAbort(signal: AbortSignal, work: Promise<unknown>): Promise<boolean> {
  return before(work, (expire) => {
    if (signal.aborted) expire();
    else signal.addEventListener('abort', expire, { once: true });
    return () => signal.removeEventListener('abort', expire);
  });
}

async function before(
  work: Promise<unknown>,
  arm: (expire: () => void) => () => void,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<false>();
  const disarm = arm(() => resolve(false));
  try {
    return await Promise.race([work.then(() => true as const), promise]);
  } finally {
    disarm();
  }
}
