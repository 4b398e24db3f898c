import { setTimeout as wait } from 'node:timers/promises';

const POLL_MS = 20;

/**
 * Polls `condition` until it returns something truthy, and returns that. Throws an Error naming `what` when
 * `timeoutMs` (10 s) passes first; an error of the condition itself is the reason given.
 */
export async function until<T>(
  condition: () => T | Promise<T>,
  options: { readonly what: string; readonly timeoutMs?: number },
): Promise<NonNullable<T>> {
  const timeoutMs = options.timeoutMs ?? 10_000;
  const end = performance.now() + timeoutMs;
  let last: unknown = null;
  while (performance.now() < end) {
    try {
      const value = await condition();
      if (value) return value;
      last = null;
    } catch (error) {
      last = error;
    }
    await wait(POLL_MS);
  }
  throw new Error(`waited ${timeoutMs} ms for ${options.what}`, { cause: last });
}
