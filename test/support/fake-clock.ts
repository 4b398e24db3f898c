import { setImmediate as turn } from 'node:timers/promises';
import type { Clock, Timer } from '../../lib/clock/clock.ts';

interface Scheduled {
  readonly id: number;
  atMs: number;
  readonly everyMs: number | null;
  readonly action: () => void;
}

/** A clock that stands still until a test moves it. */
export class FakeClock implements Clock {
  #now: number;
  #elapsed = 0;
  #nextId = 1;
  readonly #scheduled = new Map<number, Scheduled>();

  constructor(startMs: number = Date.now()) {
    this.#now = startMs;
  }

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#elapsed;
  }

  after(delayMs: number, action: () => void): Timer {
    return this.#schedule(delayMs, null, action);
  }

  every(intervalMs: number, action: () => void): Timer {
    return this.#schedule(intervalMs, intervalMs, action);
  }

  sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const refuse = (): void => {
        timer.cancel();
        reject(signal?.reason instanceof Error ? signal.reason : new Error(String(signal?.reason)));
      };
      const timer = this.after(delayMs, () => {
        signal?.removeEventListener('abort', refuse);
        resolve();
      });
      if (signal?.aborted === true) refuse();
      else signal?.addEventListener('abort', refuse, { once: true });
    });
  }

  /** How many actions are scheduled. */
  get pending(): number {
    return this.#scheduled.size;
  }

  /** Milliseconds until the next scheduled action; null without one. */
  get nextInMs(): number | null {
    const next = this.#earliest();
    return next === null ? null : next.atMs - this.#elapsed;
  }

  /** Moves on by `ms`, running what falls due in order and letting promises settle after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms;
    for (let next = this.#earliest(); next !== null && next.atMs <= end; next = this.#earliest()) {
      this.#moveTo(next.atMs);
      if (next.everyMs === null) this.#scheduled.delete(next.id);
      else next.atMs += next.everyMs;
      next.action();
      await turn();
    }
    this.#moveTo(end);
    await turn();
  }

  #schedule(delayMs: number, everyMs: number | null, action: () => void): Timer {
    const id = this.#nextId;
    this.#nextId += 1;
    this.#scheduled.set(id, { id, atMs: this.#elapsed + Math.max(0, delayMs), everyMs, action });
    return { cancel: () => this.#scheduled.delete(id) };
  }

  #earliest(): Scheduled | null {
    let best: Scheduled | null = null;
    for (const entry of this.#scheduled.values()) {
      if (best === null || entry.atMs < best.atMs) best = entry;
    }
    return best;
  }

  #moveTo(elapsedMs: number): void {
    this.#now += elapsedMs - this.#elapsed;
    this.#elapsed = elapsedMs;
  }
}
