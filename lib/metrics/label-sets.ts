import type { ResponseFlag } from '../errors/codes.ts';
import type { SeriesRow } from './series-memory.ts';
import { trafficLabels, unnamedFacts, withoutBaggage } from './traffic-labels.ts';
import type { TrafficFacts, TrafficLabels } from './traffic-labels.ts';

/**
 * Most label sets from the mesh state; each costs about 1 kB here and as much in a scrape. Further connections count under one
 * set of unknown values, so that totals stay right.
 */
export const MAX_LABEL_SETS = 10_000;

/**
 * Most label sets that the baggage of peers adds to those of the mesh, and the share of one peer's identity. Further connections
 * count without the baggage.
 */
export const MAX_REPORTED_LABEL_SETS = 1_024;

/** See {@link MAX_REPORTED_LABEL_SETS}: a client of another network with its versions, at every service of a node. */
export const MAX_REPORTED_LABEL_SETS_PER_PEER = 128;

/** A set without a connection for this time is dropped; scrapers have read it by then. */
export const LABEL_SET_IDLE_MS = 3_600_000;

/** Time without use after which a label set from baggage is dropped. */
export const REPORTED_LABEL_SET_IDLE_MS = 600_000;

/** Time between two searches for sets to drop while there is no room; a search costs a millisecond. */
const SWEEP_INTERVAL_MS = 60_000;

/** Sets checked for being dropped after one scrape: some 50 µs. The next scrape goes on behind them. */
export const SETS_SWEPT_PER_SCRAPE = 512;

/** The counts under one set of labels. */
export interface LabelSet {
  readonly labels: TrafficLabels;
  /** Opened connections, received and sent bytes. */
  readonly row: SeriesRow;
  /** Ended connections, by how they ended. */
  readonly closed: Map<ResponseFlag, SeriesRow>;
  /** Connections that are open now. */
  live: number;
  /** True when a connection began or ended since the last check. */
  used: boolean;
  usedAtMs: number;
  /** True when the set was dropped; its counts are not published any more. */
  gone: boolean;
  /** The peer whose baggage made the set; null when the mesh state made it. */
  readonly reportedBy: string | null;
}

/** Bounds and clock of {@link LabelSets}; monotonic milliseconds. */
export interface LabelSetOptions {
  readonly maxLabelSets?: number;
  readonly maxReported?: number;
  readonly maxReportedPerPeer?: number;
  readonly now?: () => number;
}

/** Makes and drops the rows of sets. */
export interface LabelSetRows {
  open(labels: TrafficLabels): SeriesRow;
  /** The set was dropped. */
  giveUp(set: LabelSet): void;
}

/** The label sets of one thread. They are bounded, those from baggage apart, and dropped when they are not used. */
export class LabelSets {
  /** Number of connections that count without all their labels. */
  overflow = 0;
  readonly #max: number;
  readonly #maxReported: number;
  readonly #maxReportedPerPeer: number;
  readonly #now: () => number;
  readonly #sets = new Map<string, LabelSet>();
  /** Number of sets of each reporting peer. */
  readonly #reporters = new Map<string, number>();
  #reported = 0;
  #sweptAtMs: number;
  readonly #rows: LabelSetRows;
  /** The place where the next check goes on. */
  #sweeping: Iterator<[string, LabelSet]>;

  constructor(rows: LabelSetRows, options: LabelSetOptions = {}) {
    this.#rows = rows;
    this.#sweeping = this.#sets.entries();
    this.#max = options.maxLabelSets ?? MAX_LABEL_SETS;
    this.#maxReported = options.maxReported ?? MAX_REPORTED_LABEL_SETS;
    this.#maxReportedPerPeer = options.maxReportedPerPeer ?? MAX_REPORTED_LABEL_SETS_PER_PEER;
    this.#now = options.now ?? (() => performance.now());
    this.#sweptAtMs = this.#now();
  }

  /** Returns the set of a connection; `whole` is true when it has all labels. */
  get(facts: TrafficFacts): { readonly set: LabelSet; readonly whole: boolean } {
    const labels = trafficLabels(facts);
    const key = keyOf(labels);
    const known = this.#sets.get(key);
    if (known !== undefined) return { set: known, whole: true };
    const reportedBy = reporterOf(facts, key);
    if (this.#hasRoom(reportedBy)) return { set: this.#add(key, labels, reportedBy), whole: true };
    this.overflow += 1;
    const less = reportedBy === null ? unnamedFacts(facts) : withoutBaggage(facts);
    return { set: this.#fallback(less), whole: false };
  }

  /** Drops sets that were not used for long, among a bounded number of sets. Call it after all values were published. */
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
    const idleMs = set.reportedBy === null ? LABEL_SET_IDLE_MS : REPORTED_LABEL_SET_IDLE_MS;
    if (now - set.usedAtMs >= idleMs) this.#giveUp(key, set);
  }

  /** Returns a set with fewer labels: those of the mesh state if there is room, else unknown ones. */
  #fallback(facts: TrafficFacts): LabelSet {
    const labels = trafficLabels(facts);
    const key = keyOf(labels);
    const known = this.#sets.get(key);
    if (known !== undefined) return known;
    const unnamed = unnamedFacts(facts);
    const isLast = keyOf(trafficLabels(unnamed)) === key;
    return isLast || this.#hasRoom(null) ? this.#add(key, labels, null) : this.#fallback(unnamed);
  }

  #hasRoom(reportedBy: string | null): boolean {
    if (this.#fits(reportedBy)) return true;
    if (this.#now() - this.#sweptAtMs < SWEEP_INTERVAL_MS) return false;
    this.#sweepAll();
    return this.#fits(reportedBy);
  }

  #fits(reportedBy: string | null): boolean {
    if (reportedBy === null) return this.#sets.size - this.#reported < this.#max;
    return (
      this.#reported < this.#maxReported &&
      (this.#reporters.get(reportedBy) ?? 0) < this.#maxReportedPerPeer
    );
  }

  #add(key: string, labels: TrafficLabels, reportedBy: string | null): LabelSet {
    const set: LabelSet = {
      labels,
      row: this.#rows.open(labels),
      closed: new Map(),
      live: 0,
      used: true,
      usedAtMs: this.#now(),
      gone: false,
      reportedBy,
    };
    this.#sets.set(key, set);
    if (reportedBy !== null) this.#countReported(reportedBy, 1);
    return set;
  }

  #giveUp(key: string, set: LabelSet): void {
    set.gone = true;
    this.#sets.delete(key);
    this.#rows.giveUp(set);
    if (set.reportedBy !== null) this.#countReported(set.reportedBy, -1);
  }

  #countReported(reportedBy: string, change: number): void {
    this.#reported += change;
    const count = (this.#reporters.get(reportedBy) ?? 0) + change;
    if (count > 0) this.#reporters.set(reportedBy, count);
    else this.#reporters.delete(reportedBy);
  }
}

/** Returns the peer whose baggage makes the labels; null when the mesh state gives the same labels. */
function reporterOf(facts: TrafficFacts, key: string): string | null {
  if (facts.sourceBaggage === null && facts.destinationBaggage === null) return null;
  if (keyOf(trafficLabels(withoutBaggage(facts))) === key) return null;
  return (facts.reporter === 'source' ? facts.destinationIdentity : facts.sourceIdentity) ?? '';
}

function keyOf(labels: TrafficLabels): string {
  return labels.map(([, value]) => value).join('\n');
}
