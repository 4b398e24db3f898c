/** Runs the computations of derived collections, in small steps. See docs/decisions/derived-collections.md. */
import { InvariantError } from '../errors/assert.ts';
import type { Cell, Watched } from './cell.ts';
import { Reading } from './reading.ts';

/** Dependents marked in one step. */
const MARKED_PER_STEP = 512;

/** Told of a computation that threw; its old value stays. */
export type FailureListener = (key: string, error: unknown) => void;

/** The computations of a set of collections. */
export class Graph {
  readonly #failed: FailureListener;
  /** Cells to compute again, by rank. */
  readonly #dirty: Cell[][] = [];
  /** No lower rank has a dirty cell. */
  #lowest = 0;
  /** Cells that are still to be marked. */
  readonly #marking: Iterator<Cell>[] = [];
  /** Cells on demand without dependents. */
  readonly #idle = new Set<Cell>();
  #ranks = 0;
  #computed = 0;

  constructor(failed: FailureListener) {
    this.#failed = failed;
  }

  /** Number of computations so far. */
  get computed(): number {
    return this.#computed;
  }

  /** True when every value is up to date. */
  get settled(): boolean {
    if (this.#marking.length > 0) return false;
    return this.#dirty.every((cells) => cells.length === 0);
  }

  /** The rank of a new collection; collections call it. */
  nextRank(): number {
    this.#ranks += 1;
    this.#dirty.push([]);
    return this.#ranks - 1;
  }

  /** Marks a cell to be computed again; collections call it. */
  mark(cell: Cell): void {
    if (cell.dirty) return;
    cell.dirty = true;
    const { rank } = cell.owner;
    this.#dirty[rank]?.push(cell);
    if (rank < this.#lowest) this.#lowest = rank;
  }

  /** Notes that something changed, so that its dependents are computed again; collections call it. */
  changed(watched: Watched | undefined): void {
    if (watched === undefined) return;
    if (watched.readers > MARKED_PER_STEP) this.#marking.push(watched.dependents());
    else for (const cell of watched.dependents()) this.mark(cell);
  }

  /**
   * Runs the computation of a cell and records what it read. Returns null when it threw: the failure is reported, and the
   * old value stays until something changes that it read. Collections call it.
   */
  compute<V>(cell: Cell, compute: (reading: Reading) => V): { readonly value: V } | null {
    this.#computed += 1;
    const reading = new Reading(cell.owner.rank);
    try {
      return { value: compute(reading) };
    } catch (error) {
      if (error instanceof InvariantError) throw error;
      this.#failed(cell.key, error);
      return null;
    } finally {
      cell.setReads(reading.fetched);
    }
  }

  /** Notes a cell that nobody reads any more; it is dropped once everything else is up to date. */
  idle(cell: Cell): void {
    this.#idle.add(cell);
  }

  /**
   * Brings every value up to date, in small steps. Sources may change between the steps. When it ends, all values belong
   * to one state of the sources.
   */
  *settle(): Generator<void, void> {
    for (;;) {
      const marking = this.#marking.at(-1);
      if (marking !== undefined) {
        if (this.#markSome(marking)) this.#marking.pop();
      } else {
        const cell = this.#nextDirty();
        if (cell === null) {
          if (this.#idle.size === 0) return;
          this.#dropIdle();
        } else {
          cell.dirty = false;
          cell.owner.recompute(cell);
        }
      }
      yield;
    }
  }

  /** Marks the next cells; true when all are marked. */
  #markSome(cells: Iterator<Cell>): boolean {
    for (let count = 0; count < MARKED_PER_STEP; count += 1) {
      const next = cells.next();
      if (next.done === true) return true;
      this.mark(next.value);
    }
    return false;
  }

  #nextDirty(): Cell | null {
    for (; this.#lowest < this.#dirty.length; this.#lowest += 1) {
      const cell = this.#dirty[this.#lowest]?.pop();
      if (cell !== undefined) return cell;
    }
    this.#lowest = 0;
    return null;
  }

  #dropIdle(): void {
    for (const cell of this.#idle) {
      this.#idle.delete(cell);
      if (!cell.isRead) cell.owner.drop(cell);
      return;
    }
  }
}
