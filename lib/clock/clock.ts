// The global one is looked up by a getter at each use.
import { performance } from 'node:perf_hooks';

/** A source of time; tests replace it to run schedules without waiting. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Monotonic milliseconds, for durations. */
  monotonic(): number;
  /** Runs `action` once after `delayMs`; the handle cancels it. Does not keep the process alive. */
  after(delayMs: number, action: () => void): Timer;
  /**
   * Runs `action` every `intervalMs`, for the first time after half of it at least; the handle cancels it. Does not keep the
   * process alive.
   */
  every(intervalMs: number, action: () => void): Timer;
  /** Resolves after `delayMs`; rejects with the signal's reason when it aborts first. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
}

/**
 * Sleeps until the time is over or the signal aborts. Unlike {@link Clock.sleep} it does not reject on an abort, because a loop
 * checks the signal next.
 */
export async function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(delayMs, signal);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/**
 * Runs `action` after `delayMs`, and after the process has read what arrived in that time: a process that was held up must not
 * mistake its own pause for a peer's silence.
 */
export function afterInput(clock: Clock, delayMs: number, action: () => void): Timer {
  let last: NodeJS.Immediate | undefined;
  const timer = clock.after(delayMs, () => {
    last = setImmediate(action);
  });
  return {
    cancel: () => {
      timer.cancel();
      clearImmediate(last);
    },
  };
}

/** A scheduled action. */
export interface Timer {
  cancel(): void;
}

/** Node fires delays above 2^31-1 ms (24 days) at once, so longer delays are split. */
const LONGEST_TIMER_MS = 2_147_483_647;

/** The machine's own clock. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(delayMs, action) {
    if (delayMs <= LONGEST_TIMER_MS) {
      const only = setTimeout(action, delayMs).unref();
      return { cancel: () => clearTimeout(only) };
    }
    let handle: NodeJS.Timeout;
    const wait = (leftMs: number): void => {
      const partMs = Math.min(leftMs, LONGEST_TIMER_MS);
      const then = leftMs > partMs ? () => wait(leftMs - partMs) : action;
      handle = setTimeout(then, partMs).unref();
    };
    wait(delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
  every(intervalMs, action) {
    const ms = Math.min(intervalMs, LONGEST_TIMER_MS);
    // Processes that start together would else do all of this at the same moments.
    const firstMs = ms * (1 - Math.random() / 2);
    let handle = setTimeout(() => {
      handle = setInterval(action, ms).unref();
      action();
    }, firstMs).unref();
    return { cancel: () => clearTimeout(handle) };
  },
  sleep(delayMs, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) {
        reject(toError(signal.reason));
        return;
      }
      const abort = (): void => {
        clearTimeout(handle);
        reject(toError(signal?.reason));
      };
      const handle = setTimeout(
        () => {
          signal?.removeEventListener('abort', abort);
          resolve();
        },
        Math.min(delayMs, LONGEST_TIMER_MS),
      );
      signal?.addEventListener('abort', abort, { once: true });
    });
  },
};

function toError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
