import type { ResponseFlag } from '../errors/codes.ts';
import type { SeriesRow } from './series-memory.ts';
import { trafficLabels, unnamedFacts, withoutBaggage } from './traffic-labels.ts';
import type { TrafficFacts, TrafficLabels } from './traffic-labels.ts';

/**
 * Label sets made of what the mesh knows; each costs about 1 kB here and as much in a scrape. What comes after is counted
 * under one set of unknown values, so that totals stay right.
 */
export const MAX_LABEL_SETS = 10_000;

/**
 * Label sets that differ by what peers say of themselves (baggage), beside those of the mesh, and how many of them one
 * peer's identity may make. What comes after is counted without that word.
 */
export const MAX_TOLD_LABEL_SETS = 1_024;

/** See {@link MAX_TOLD_LABEL_SETS}: a client of another network with its versions, at every service of a node. */
export const MAX_TOLD_LABEL_SETS_PER_PEER = 128;

/** A set without a connection for this long is given up; whoever scrapes has seen it long since. */
export const LABEL_SET_IDLE_MS = 3_600_000;

/** One that a peer's word made. */
export const TOLD_LABEL_SET_IDLE_MS = 600_000;

/** Between two looks for sets to give up while there is no room: a look costs a millisecond. */
const SWEEP_INTERVAL_MS = 60_000;

/** Sets looked at for being given up after one scrape: some 50 µs. The next scrape goes on behind them. */
export const SETS_SWEPT_PER_SCRAPE = 512;

/** What is counted under one set of labels. */
export interface LabelSet {
  readonly labels: TrafficLabels;
  /** What was opened, received and sent. */
  readonly row: SeriesRow;
  /** Ended connections, by how they ended. */
  readonly closed: Map<ResponseFlag, SeriesRow>;
  /** Connections that are open now. */
  live: number;
  /** A connection began or ended since the last look. */
  used: boolean;
  usedAtMs: number;
  /** It was given up: nothing counted here is told any more. */
  gone: boolean;
  /** Who said what makes it differ; null when that is the mesh. */
  readonly teller: string | null;
}

/** Bounds and clock of {@link LabelSets}; monotonic milliseconds. */
export interface LabelSetOptions {
  readonly maxLabelSets?: number;
  readonly maxTold?: number;
  readonly maxToldPerPeer?: number;
  readonly now?: () => number;
}

/** Where the counts of a set stand. */
export interface LabelSetRows {
  open(labels: TrafficLabels): SeriesRow;
  /** The set was given up. */
  giveUp(set: LabelSet): void;
}

/** The label sets of one thread: bounded, those that peers' words make apart, and given up when nobody uses them. */
export class LabelSets {
  /** Connections that are counted without all their labels. */
  overflow = 0;
  readonly #max: number;
  readonly #maxTold: number;
  readonly #maxToldPerPeer: number;
  readonly #now: () => number;
  readonly #sets = new Map<string, LabelSet>();
  /** Sets of each teller. */
  readonly #tellers = new Map<string, number>();
  #told = 0;
  #sweptAtMs: number;
  readonly #rows: LabelSetRows;
  /** Where the next look goes on. */
  #sweeping: Iterator<[string, LabelSet]>;

  constructor(rows: LabelSetRows, options: LabelSetOptions = {}) {
    this.#rows = rows;
    this.#sweeping = this.#sets.entries();
    this.#max = options.maxLabelSets ?? MAX_LABEL_SETS;
    this.#maxTold = options.maxTold ?? MAX_TOLD_LABEL_SETS;
    this.#maxToldPerPeer = options.maxToldPerPeer ?? MAX_TOLD_LABEL_SETS_PER_PEER;
    this.#now = options.now ?? (() => performance.now());
    this.#sweptAtMs = this.#now();
  }

  /** The set of a connection; `whole` tells whether it has all its labels. */
  get(facts: TrafficFacts): { readonly set: LabelSet; readonly whole: boolean } {
    const labels = trafficLabels(facts);
    const key = keyOf(labels);
    const known = this.#sets.get(key);
    if (known !== undefined) return { set: known, whole: true };
    const teller = tellerOf(facts, key);
    if (this.#hasRoom(teller)) return { set: this.#add(key, labels, teller), whole: true };
    this.overflow += 1;
    const less = teller === null ? unnamedFacts(facts) : withoutBaggage(facts);
    return { set: this.#fallback(less), whole: false };
  }

  /** Gives up what nobody has used for long, among a bounded number of sets. Call it when everything has been told. */
  sweep(): void {
    const now = this.#now();
    for (let looked = 0; looked < SETS_SWEPT_PER_SCRAPE; looked += 1) {
      const next = this.#sweeping.next();
      if (next.done === true) {
        this.#sweeping = this.#sets.entries();
        return;
      }
      this.#look(...next.value, now);
    }
  }

  #sweepAll(): void {
    const now = this.#now();
    this.#sweptAtMs = now;
    for (const [key, set] of this.#sets) this.#look(key, set, now);
  }

  #look(key: string, set: LabelSet, now: number): void {
    if (set.used || set.live > 0) {
      set.used = false;
      set.usedAtMs = now;
      return;
    }
    const idleMs = set.teller === null ? LABEL_SET_IDLE_MS : TOLD_LABEL_SET_IDLE_MS;
    if (now - set.usedAtMs >= idleMs) this.#giveUp(key, set);
  }

  /** A set with fewer labels: the mesh's own word where there is room for it, else none at all. */
  #fallback(facts: TrafficFacts): LabelSet {
    const labels = trafficLabels(facts);
    const key = keyOf(labels);
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const unnamed = unnamedFacts(facts);
    const isLast = keyOf(trafficLabels(unnamed)) === key;
    return isLast || this.#hasRoom(null) ? this.#add(key, labels, null) : this.#fallback(unnamed);
  }

  #hasRoom(teller: string | null): boolean {
    if (this.#fits(teller)) return true;
    if (this.#now() - this.#sweptAtMs < SWEEP_INTERVAL_MS) return false;
    this.#sweepAll();
    return this.#fits(teller);
  }

  #fits(teller: string | null): boolean {
    if (teller === null) return this.#sets.size - this.#told < this.#max;
    return this.#told < this.#maxTold && (this.#tellers.get(teller) ?? 0) < this.#maxToldPerPeer;
  }

  #add(key: string, labels: TrafficLabels, teller: string | null): LabelSet {
    const set: LabelSet = {
      labels,
      row: this.#rows.open(labels),
      closed: new Map(),
      live: 0,
      used: true,
      usedAtMs: this.#now(),
      gone: false,
      teller,
    };
    this.#sets.set(key, set);
    if (teller !== null) this.#countTold(teller, 1);
    return set;
  }

  #giveUp(key: string, set: LabelSet): void {
    set.gone = true;
    this.#sets.delete(key);
    this.#rows.giveUp(set);
    if (set.teller !== null) this.#countTold(set.teller, -1);
  }

  #countTold(teller: string, change: number): void {
    this.#told += change;
    const count = (this.#tellers.get(teller) ?? 0) + change;
    if (count > 0) this.#tellers.set(teller, count);
    else this.#tellers.delete(teller);
  }
}

/** Whose word makes the labels what they are; null when the mesh's own would give the same. */
function tellerOf(facts: TrafficFacts, key: string): string | null {
  if (facts.sourceBaggage === null && facts.destinationBaggage === null) return null;
  if (keyOf(trafficLabels(withoutBaggage(facts))) === key) return null;
  return (facts.reporter === 'source' ? facts.destinationIdentity : facts.sourceIdentity) ?? '';
}

function keyOf(labels: TrafficLabels): string {
  return labels.map(([, value]) => value).join('\n');
}
