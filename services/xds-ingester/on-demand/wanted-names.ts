/** The names that are subscribed on demand, with what is known of each. Pure. */
import type { DemandedNames, NameChanges } from '../../../lib/xds/subscriptions.ts';
import { DEMAND_NAMES_MAX } from '../limits.ts';

/** Bounds of {@link WantedNames}, see `limits.ts`. */
export interface WantedBounds {
  readonly max: number;
  readonly idleMs: number;
  readonly inUseMs: number;
  readonly recheckMs: number;
  readonly rechecks: number;
}

/** One name. */
interface Wanted {
  /** When a node-proxy asked for it last. */
  wantedMs: number;
  /** When the control plane was asked last. */
  askedMs: number;
  /** The control plane has told what it has under the name, or that it has nothing. */
  answered: boolean;
  /** A resource with this name is held. */
  found: boolean;
}

/** The outcome of a request for a name. */
export type WantOutcome = 'new' | 'known' | 'refused';

/** Which names to ask for, and which to give up. Times are monotonic milliseconds. */
export class WantedNames implements DemandedNames {
  readonly #bounds: WantedBounds;
  readonly #nowMs: () => number;
  /** Least recently wanted first. */
  readonly #names = new Map<string, Wanted>();
  readonly #due = new Set<string>();
  readonly #unsubscribe = new Set<string>();

  constructor(bounds: WantedBounds, nowMs: () => number) {
    this.#bounds = bounds;
    this.#nowMs = nowMs;
  }

  get size(): number {
    return this.#names.size;
  }

  /** Names that the control plane has not answered. */
  get unanswered(): number {
    let count = 0;
    for (const { answered } of this.#names.values()) if (!answered) count += 1;
    return count;
  }

  has(name: string): boolean {
    return this.#names.has(name);
  }

  names(): IterableIterator<string> {
    return this.#names.keys();
  }

  /**
   * A node-proxy asks for a name. A new one takes the place of the least recently wanted when there are too many, unless that one
   * is in use; `evict` is called with it.
   */
  want(name: string, evict: (name: string) => void): WantOutcome {
    const known = this.#names.get(name);
    if (known !== undefined) {
      known.wantedMs = this.#nowMs();
      // Moves it to the young end.
      this.#names.delete(name);
      this.#names.set(name, known);
      return 'known';
    }
    if (this.#names.size >= this.#bounds.max) {
      const [oldest] = this.#idle(this.#bounds.inUseMs);
      if (oldest === undefined) return 'refused';
      evict(oldest);
    }
    this.add(name, false);
    return 'new';
  }

  /** Adds a name that is wanted now. */
  add(name: string, answered: boolean): void {
    const nowMs = this.#nowMs();
    this.#names.set(name, { wantedMs: nowMs, askedMs: nowMs, answered, found: false });
    this.#unsubscribe.delete(name);
    this.#due.add(name);
  }

  /** The names that nobody wanted for so long that they are given up. */
  idle(): readonly string[] {
    return [...this.#idle(this.#bounds.idleMs)];
  }

  /** Forgets all names. */
  clear(): void {
    this.#names.clear();
    this.#due.clear();
    this.#unsubscribe.clear();
  }

  /** Gives up a name. */
  drop(name: string): void {
    this.#names.delete(name);
    this.unsubscribe(name);
  }

  /** Unsubscribes from a name, or from a resource that came with one. */
  unsubscribe(name: string): void {
    this.#due.delete(name);
    this.#unsubscribe.add(name);
  }

  /** The control plane has told about the name. Returns true when it had not before. */
  answer(name: string): boolean {
    const wanted = this.#names.get(name);
    if (wanted === undefined || wanted.answered) return false;
    wanted.answered = true;
    return true;
  }

  /** True while the name waits for its answer. */
  waits(name: string): boolean {
    return this.#names.get(name)?.answered === false;
  }

  /**
   * Notes whether a resource with the name is held. Returns true when the last one of an answered name has gone: it is asked for
   * anew then, because another resource may have taken its address.
   */
  note(name: string, found: boolean): boolean {
    const wanted = this.#names.get(name);
    if (wanted === undefined) return false;
    const lost = wanted.found && !found && wanted.answered;
    wanted.found = found;
    if (!lost) return false;
    wanted.answered = false;
    this.#askAgain(name);
    return true;
  }

  /** Makes names without a resource due that were not asked for lately; call it every second. */
  recheck(): void {
    const before = this.#nowMs() - this.#bounds.recheckMs;
    let left = this.#bounds.rechecks;
    for (const [name, { askedMs, found }] of this.#names) {
      if (left === 0) return;
      if (found || askedMs > before || this.#due.has(name)) continue;
      this.#askAgain(name);
      left -= 1;
    }
  }

  reopened(held: Iterable<string>): void {
    this.#unsubscribe.clear();
    this.#due.clear();
    for (const name of this.#names.keys()) this.#due.add(name);
    for (const name of held) this.#due.add(name);
  }

  next(maxBytes: number): NameChanges | null {
    // Alone and first: istiod would forget a resource that another name of the same request brings.
    const unsubscribe = take(this.#unsubscribe, maxBytes);
    if (unsubscribe.length > 0) return { subscribe: [], unsubscribe };
    const subscribe = take(this.#due, maxBytes);
    for (const name of subscribe) {
      const wanted = this.#names.get(name);
      if (wanted !== undefined) wanted.askedMs = this.#nowMs();
    }
    return subscribe.length === 0 ? null : { subscribe, unsubscribe };
  }

  /** istiod answers a name only when it is new on the stream. */
  #askAgain(name: string): void {
    this.#unsubscribe.add(name);
    this.#due.add(name);
  }

  *#idle(longerThanMs: number): Generator<string> {
    const before = this.#nowMs() - longerThanMs;
    for (const [name, { wantedMs }] of this.#names) {
      if (wantedMs > before) return;
      yield name;
    }
  }
}

function take(names: Set<string>, maxBytes: number): string[] {
  const taken: string[] = [];
  let bytes = 0;
  for (const name of names) {
    bytes += Buffer.byteLength(name) + 4;
    if (taken.length >= DEMAND_NAMES_MAX || bytes > maxBytes) break;
    taken.push(name);
    names.delete(name);
  }
  return taken;
}
