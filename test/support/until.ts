import { setTimeout as wait } from 'node:timers/promises';

const POLL_MS = 20;
/** The longest pause between two checks. */
const LONGEST_PAUSE_MS = 2_000;
/** The pause after a check, in times of what the check took. */
const PAUSES_PER_CHECK = 2;
/** The pause grows with the time waited so far, by this share of it and up to this length. */
const PAUSE_SHARE = 1 / 20;
const LONGEST_GROWN_MS = 200;

/** A wait ends when its condition holds. The bound only ends a failed test, so it is far from what a busy machine needs. */
const LEAST_BOUND_MS = 120_000;

/**
 * Polls `condition` until it returns a truthy value, and returns that. After two minutes, or a longer `timeoutMs`, it
 * throws an Error that names `what`, with the condition's last error as the cause. It checks once more after the bound,
 * because this process itself may have been stopped.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { readonly what: string; readonly timeoutMs?: number },
): Promise<NonNullable<T>> {
  const timeoutMs = Math.max(options.timeoutMs ?? 0, LEAST_BOUND_MS);
  const start = performance.now();
  const end = start + timeoutMs;
  let last: unknown;
  let pauseMs = POLL_MS;
  for (let over = false; ; await wait(pauseMs)) {
    const begun = performance.now();
    try {
      const value = await condition();
      if (value) return value;
      last = null;
    } catch (error) {
      last = error;
    }
    // A condition that starts a program must not occupy a processor all the time, nor must any condition of a long wait.
    const now = performance.now();
    const grownMs = Math.min(PAUSE_SHARE * (now - start), LONGEST_GROWN_MS);
    pauseMs = Math.min(
      Math.max(POLL_MS, grownMs, PAUSES_PER_CHECK * (now - begun)),
      LONGEST_PAUSE_MS,
    );
    if (over) throw new Error(`waited ${timeoutMs} ms for ${options.what}`, { cause: last });
    over = performance.now() >= end;
  }
}
