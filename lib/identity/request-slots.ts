import type { Urgency } from './signing-port.ts';
import { URGENCY_RANK } from './signing-port.ts';

/**
 * Most requests under way at once for which no connection waits. A fetcher works on far fewer; a node of a thousand
 * identities would start far more.
 */
const MAX_BACKGROUND_REQUESTS = 64;

/**
 * Starts requests in the order of their urgency, equal ones in order of arrival. A real-time request starts at once and
 * takes no slot.
 */
export class RequestSlots {
  readonly #limit: number;
  readonly #waiting = new Map<string, { readonly urgency: Urgency; readonly begin: () => void }>();
  readonly #running = new Set<string>();

  constructor(limit: number = MAX_BACKGROUND_REQUESTS) {
    this.#limit = limit;
  }

  /** Calls `begin` now or when a slot is free. A waiting key moves to the new urgency. */
  enter(key: string, urgency: Urgency, begin: () => void): void {
    this.#waiting.delete(key);
    if (urgency === 'realTime') {
      begin();
      return;
    }
    this.#waiting.set(key, { urgency, begin });
    this.#next();
  }

  /** Moves a waiting key to a more urgent place; does nothing after its start. */
  raise(key: string, urgency: Urgency): void {
    const entry = this.#waiting.get(key);
    if (entry !== undefined && URGENCY_RANK[urgency] < URGENCY_RANK[entry.urgency]) {
      this.enter(key, urgency, entry.begin);
    }
  }

  /** Frees the key's slot, or removes the key from the waiting ones. */
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
