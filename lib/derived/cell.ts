/** One computed value, and the things that a computation can read. */

/** Something that computations read: a key of a collection, a value of an index, or a computed value. */
export abstract class Watched {
  /** The cells whose last computation read it. Most have one, kept without a set. */
  #dependents: Cell | Set<Cell> | null = null;

  /** True while a computation depends on it. */
  get isRead(): boolean {
    return this.#dependents !== null;
  }

  /** Number of its dependents. */
  get readers(): number {
    if (this.#dependents === null) return 0;
    return this.#dependents instanceof Set ? this.#dependents.size : 1;
  }

  /** The dependents; they may change meanwhile. */
  dependents(): Iterator<Cell> & Iterable<Cell> {
    const held = this.#dependents;
    if (held instanceof Set) return held.values();
    return (held === null ? [] : [held]).values();
  }

  /** Adds a dependent. */
  addDependent(cell: Cell): void {
    const held = this.#dependents;
    if (held === null) this.#dependents = cell;
    else if (held instanceof Set) held.add(cell);
    else if (held !== cell) this.#dependents = new Set([held, cell]);
  }

  /** Removes a dependent; tells when it was the last. */
  forget(cell: Cell): void {
    const held = this.#dependents;
    if (held instanceof Set) {
      held.delete(cell);
      if (held.size > 0) return;
    } else if (held !== cell) return;
    this.#dependents = null;
    this.released();
  }

  /** Called when the last dependent is gone. */
  abstract released(): void;
}

/** Computes the cells of a collection. */
export interface CellOwner {
  /** Collections are computed in the order of their ranks; a computation reads only lower ranks. */
  readonly rank: number;
  recompute(cell: Cell): void;
  /** The last dependent of the cell is gone; it may get others before everything is up to date. */
  released(cell: Cell): void;
  /** Everything is up to date, and the cell has no dependents. */
  drop(cell: Cell): void;
}

const NOTHING: readonly Watched[] = [];

/** One value of a computed collection, with everything that its computation read. */
export class Cell extends Watched {
  readonly owner: CellOwner;
  readonly key: string;
  value: unknown = undefined;
  dirty = false;
  #reads: readonly Watched[] = NOTHING;

  constructor(owner: CellOwner, key: string) {
    super();
    this.owner = owner;
    this.key = key;
  }

  released(): void {
    this.owner.released(this);
  }

  /** Replaces the record of what the computation read. */
  setReads(reads: ReadonlySet<Watched>): void {
    const before = this.#reads;
    if (isSame(before, reads)) return;
    for (const watched of reads) watched.addDependent(this);
    this.#reads = reads.size === 0 ? NOTHING : [...reads];
    for (const watched of before) if (!reads.has(watched)) watched.forget(this);
  }
}

function isSame(before: readonly Watched[], reads: ReadonlySet<Watched>): boolean {
  return before.length === reads.size && before.every((watched) => reads.has(watched));
}
