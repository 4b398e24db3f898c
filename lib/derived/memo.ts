import { isDeepStrictEqual } from 'node:util';
import { Cell } from './cell.ts';
import type { CellOwner } from './cell.ts';
import type { Graph } from './graph.ts';
import type { Readable, Reading } from './reading.ts';

/** Values that are computed when a computation first reads them, and dropped when none reads them any more. */
export class Memo<V> implements Readable<V>, CellOwner {
  readonly rank: number;
  readonly #graph: Graph;
  readonly #compute: (reading: Reading, key: string) => V;
  readonly #cells = new Map<string, Cell>();

  /** `compute` must be pure. Values are compared by content. */
  constructor(graph: Graph, compute: (reading: Reading, key: string) => V) {
    this.#graph = graph;
    this.rank = graph.nextRank();
    this.#compute = compute;
  }

  /** Number of values that somebody reads. */
  get size(): number {
    return this.#cells.size;
  }

  read(reading: Reading, key: string): V | undefined {
    let cell = this.#cells.get(key);
    if (cell === undefined) {
      cell = new Cell(this, key);
      this.#cells.set(key, cell);
      this.#update(cell);
      // A reader that throws leaves no record of it.
      this.#graph.idle(cell);
    }
    reading.note(cell);
    return cell.value as V | undefined;
  }

  recompute(cell: Cell): void {
    if (!cell.isRead) return this.drop(cell);
    if (this.#update(cell)) this.#graph.changed(cell);
  }

  released(cell: Cell): void {
    this.#graph.idle(cell);
  }

  drop(cell: Cell): void {
    if (this.#cells.get(cell.key) !== cell) return;
    this.#cells.delete(cell.key);
    cell.setReads(new Set());
  }

  /** Computes the value; false when it stays as it was. */
  #update(cell: Cell): boolean {
    const result = this.#graph.compute(cell, (reading) => this.#compute(reading, cell.key));
    if (result === null) return false;
    const before = cell.value as V | undefined;
    if (before !== undefined && isDeepStrictEqual(before, result.value)) return false;
    cell.value = result.value;
    return true;
  }
}
