import { TokenBucket } from '../../../../lib/async/token-bucket.ts';
import { evictOldest } from '../../../../lib/collections/evict.ts';
import type { Clock, Timer } from '../../../../lib/clock/clock.ts';
import { lookupId } from '../../../../lib/state/view.ts';
import type { LookupKey } from '../../../../lib/state/view.ts';
import { keyOfWanted, wantedName } from '../../../../lib/state/wanted-name.ts';
import type { StateRequest } from '../../../../workers/listener/protocol/state.ts';
import {
  ASK_AGAIN_MS,
  NAMES_OF_POD,
  NAMES_REFRESH_MS,
  NAMES_USED_MAX,
  NAMES_WAITED_MAX,
} from '../../limits.ts';
import type { AnsweredNames } from './answered-names.ts';

/** Collaborators of {@link Demands}. */
export interface DemandDeps {
  readonly clock: Clock;
  readonly answered: AnsweredNames;
  /** Longest wait of a lookup for names, milliseconds. */
  readonly waitMs: number;
  /** Asks the ingester for names, or repeats that they are in use. */
  readonly want: (names: readonly string[]) => void;
  /** Makes listener threads forget answers by lookup id, so that they ask again for those they use. */
  readonly forget: (ids: readonly string[]) => void;
}

/** A lookup that waits for names. */
interface Waiter {
  readonly names: Set<string>;
  readonly timer: Timer;
  readonly done: () => void;
}

/** Gauges and counters. */
export interface DemandStats {
  readonly used: number;
  readonly waited: number;
  /** Lookups that were not asked for: too many of one pod, or too many at once. */
  readonly refused: number;
}

type Lookup = Extract<StateRequest, { type: 'lookup' }>;

/**
 * Asks the ingester for what lookups and pods of this process need and the mesh state does not hold yet
 * (docs/decisions/on-demand.md). Bounded: names that are waited for, names a second of one pod, names in use.
 */
export class Demands {
  readonly #deps: DemandDeps;
  readonly #timer: Timer;
  readonly #waiting = new Map<string, Set<Waiter>>();
  /** Names of local pods and of their services, by pod. */
  readonly #pins = new Map<string, readonly string[]>();
  readonly #unknownPins = new Set<string>();
  /** Names in use, with the time of the last lookup; the least recently used first. */
  readonly #used = new Map<string, number>();
  readonly #budgets = new Map<string, TokenBucket>();
  /** Names that were asked for without a wait, with the time. */
  readonly #asked = new Map<string, number>();
  #refreshedMs: number;
  #refused = 0;

  constructor(deps: DemandDeps) {
    this.#deps = deps;
    this.#refreshedMs = deps.clock.monotonic();
    this.#timer = deps.clock.every(ASK_AGAIN_MS, () => this.#tick());
  }

  get stats(): DemandStats {
    return { used: this.#used.size, waited: this.#waiting.size, refused: this.#refused };
  }

  /** True when the rows held tell all there is under the key. */
  knows(key: LookupKey): boolean {
    return key.kind === 'hostname' || this.#deps.answered.knows(wantedName(key));
  }

  /**
   * Notes the use of the keys, and asks for those that are not known. Returns true when the lookup is to be answered now, with what
   * is known; else calls `done` once all are known or the time is over.
   */
  offer({ keys, pod, wait }: Lookup, done: () => void): boolean {
    const nowMs = this.#deps.clock.monotonic();
    const unknown = new Set<string>();
    for (const key of keys) {
      if (key.kind === 'hostname') continue;
      const name = wantedName(key);
      if (this.knows(key)) this.#use(name, nowMs);
      else unknown.add(name);
    }
    if (unknown.size === 0) return true;
    if (pod === undefined || !this.#ask(unknown, pod, nowMs) || wait !== true) return true;
    const timer = this.#deps.clock.after(this.#deps.waitMs, () => this.#end(waiter));
    const waiter: Waiter = { names: unknown, timer, done };
    for (const name of unknown) {
      this.#waiting.set(name, (this.#waiting.get(name) ?? new Set()).add(waiter));
    }
    return false;
  }

  /** A pod of this process needs these names for as long as it is served. Returns true when all are known. */
  pin(pod: string, names: readonly string[]): boolean {
    const before = this.#pins.get(pod) ?? [];
    const fresh = names.filter((name) => !before.includes(name));
    this.#pins.set(pod, names);
    if (fresh.length > 0) this.#deps.want(fresh);
    const unknown = names.filter((name) => !this.#deps.answered.knows(name));
    for (const name of unknown) this.#unknownPins.add(name);
    return unknown.length === 0;
  }

  /** Ends {@link pin}. */
  unpin(pod: string): void {
    this.#pins.delete(pod);
    this.#budgets.delete(pod);
  }

  /** Answers the lookups whose names are known by now; call it after each step of the state. */
  release(): void {
    const { answered } = this.#deps;
    for (const [name, waiters] of this.#waiting) {
      if (!answered.knows(name)) continue;
      this.#waiting.delete(name);
      for (const waiter of waiters) {
        waiter.names.delete(name);
        if (waiter.names.size === 0) this.#end(waiter);
      }
    }
  }

  /** Returns the lookup ids of names of pods that have become known since the last call. */
  takeKnownPins(): ReadonlySet<string> {
    const known = [...this.#unknownPins].filter((name) => this.#deps.answered.knows(name));
    for (const name of known) this.#unknownPins.delete(name);
    return new Set(known.flatMap(idOf));
  }

  close(): void {
    this.#timer.cancel();
    for (const waiters of this.#waiting.values()) {
      for (const { timer } of waiters) timer.cancel();
    }
    this.#waiting.clear();
  }

  /** Asks for names that nobody asked for yet, at the cost of the pod. Returns false when it may not. */
  #ask(names: ReadonlySet<string>, pod: string, nowMs: number): boolean {
    const fresh = [...names].filter(
      (name) =>
        !this.#waiting.has(name) && nowMs - (this.#asked.get(name) ?? -Infinity) > ASK_AGAIN_MS,
    );
    if (fresh.length === 0) return true;
    const budget = this.#budgets.get(pod) ?? new TokenBucket(this.#deps.clock, NAMES_OF_POD);
    this.#budgets.set(pod, budget);
    const mayWait = this.#waiting.size + names.size <= NAMES_WAITED_MAX;
    if (!mayWait || !fresh.every(() => budget.spend())) {
      this.#refused += 1;
      return false;
    }
    for (const name of fresh) this.#asked.set(name, nowMs);
    evictOldest(this.#asked, NAMES_WAITED_MAX);
    this.#deps.want(fresh);
    return true;
  }

  #use(name: string, nowMs: number): void {
    this.#used.delete(name);
    this.#used.set(name, nowMs);
    evictOldest(this.#used, NAMES_USED_MAX);
  }

  #end(waiter: Waiter): void {
    waiter.timer.cancel();
    for (const name of waiter.names) {
      const waiters = this.#waiting.get(name);
      waiters?.delete(waiter);
      if (waiters?.size === 0) this.#waiting.delete(name);
    }
    waiter.done();
  }

  /** Repeats what is waited for: the ingester may have changed since, or Redis may have been away. */
  #tick(): void {
    const { answered, clock, forget, want } = this.#deps;
    const nowMs = clock.monotonic();
    const pinned = new Set([...this.#pins.values()].flat());
    for (const name of this.#unknownPins) if (!pinned.has(name)) this.#unknownPins.delete(name);
    const unknown = [...pinned].filter((name) => !answered.knows(name));
    const again = [...new Set([...this.#waiting.keys(), ...unknown])];
    if (nowMs - this.#refreshedMs < NAMES_REFRESH_MS) {
      if (again.length > 0) want(again);
      return;
    }
    const used: string[] = [];
    for (const [name, usedMs] of this.#used) {
      if (usedMs >= this.#refreshedMs) used.push(name);
      else this.#used.delete(name);
    }
    this.#refreshedMs = nowMs;
    const names = [...new Set([...again, ...pinned, ...used])];
    if (names.length > 0) want(names);
    // A thread whose answer is forgotten asks again when it needs it, which tells that the name is still in use.
    forget(used.flatMap(idOf));
  }
}

function idOf(name: string): readonly string[] {
  const key = keyOfWanted(name);
  return key === null ? [] : [lookupId(key)];
}
