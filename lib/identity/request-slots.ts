import type { Urgency } from './signing-port.ts';
import { URGENCY_RANK } from './signing-port.ts';

/**
 * Requests that nobody waits for and that may be under way at once. Far above what one fetcher works on, far
 * below what a node of a thousand identities would ask for at its start.
 */
export const MAX_BACKGROUND_REQUESTS = 64;

/**
 * Lets requests begin in the order of their urgency, equal ones in order of arrival. A real-time request
 * begins at once and takes no slot.
 */
export class RequestSlots {
  readonly #limit: number;
  readonly #waiting = new Map<string, { readonly urgency: Urgency; readonly begin: () => void }>();
  readonly #running = new Set<string>();

  constructor(limit: number = MAX_BACKGROUND_REQUESTS) {
    this.#limit = limit;
  }

  /** Begins `key`, now or when its turn comes. A key that waits already is moved to the new urgency. */
  enter(key: string, urgency: Urgency, begin: () => void): void {
    this.#waiting.delete(key);
    if (urgency === 'realTime') {
      begin();
      return;
    }
    this.#waiting.set(key, { urgency, begin });
    this.#next();
  }

  /** Moves a waiting key to a more urgent place; no effect when it has begun. */
  raise(key: string, urgency: Urgency): void {
    const entry = this.#waiting.get(key);
    if (entry !== undefined && URGENCY_RANK[urgency] < URGENCY_RANK[entry.urgency]) {
      this.enter(key, urgency, entry.begin);
    }
  }

  /** Gives the key's slot, or its place among the waiting, back. */
  leave(key: string): void {
    this.#waiting.delete(key);
    if (this.#running.delete(key)) this.#next();
  }

  #next(): void {
    while (this.#running.size < this.#limit) {
      const key = this.#mostUrgent();
      if (key === null) return;
      const entry = this.#waiting.get(key);
      this.#waiting.delete(key);
      this.#running.add(key);
      entry?.begin();
    }
  }

  #mostUrgent(): string | null {
    let best: string | null = null;
    let bestRank = Infinity;
    for (const [key, { urgency }] of this.#waiting) {
      if (URGENCY_RANK[urgency] < bestRank) {
        best = key;
        bestRank = URGENCY_RANK[urgency];
      }
    }
    return best;
  }
}
