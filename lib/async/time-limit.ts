import { MeshError } from '../errors/mesh-error.ts';
import type { Clock } from '../clock/clock.ts';

/** How long something may take. */
export interface TimeLimit<T> {
  /** Milliseconds; null = as long as it takes. */
  readonly limitMs: number | null;
  /** What did not happen in time, for the error. */
  readonly what: string;
  /** Lets go of a result that nobody waits for any more. */
  readonly release: (late: T) => void;
}

/** What `work` comes to, or UPSTREAM_TIMEOUT once its time is up; what it comes to later is released. */
export async function withTimeLimit<T>(
  clock: Clock,
  work: Promise<T>,
  { limitMs, what, release }: TimeLimit<T>,
): Promise<T> {
  if (limitMs === null) return work;
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = clock.after(limitMs, () => {
    reject(new MeshError('UPSTREAM_TIMEOUT', `${what} within ${limitMs} ms`));
    // Its failure would be a second one of something already given up.
    work.then(release, () => {});
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.cancel();
  }
}

/** Returns true when `work` resolves within `limitMs`, false when it does not. Rejects when `work` does in time. */
export async function inTime(
  clock: Clock,
  limitMs: number,
  work: Promise<unknown>,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<false>();
  const timer = clock.after(limitMs, () => resolve(false));
  try {
    return await Promise.race([work.then(() => true as const), promise]);
  } finally {
    timer.cancel();
  }
}
