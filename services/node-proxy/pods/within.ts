import type { Clock } from '../../../lib/clock/clock.ts';

/** True when `work` resolves within `timeoutMs`, false when it does not; rejects when `work` does in time. */
export async function within(
  clock: Clock,
  timeoutMs: number,
  work: Promise<unknown>,
): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<false>();
  const timer = clock.after(timeoutMs, () => resolve(false));
  try {
    return await Promise.race([work.then(() => true as const), promise]);
  } finally {
    timer.cancel();
  }
}
