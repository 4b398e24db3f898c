import { Cell } from './cell.ts';
import type { CellOwner } from './cell.ts';
import type { Graph } from './graph.ts';
import { Keyed } from './keyed.ts';
import type { Reading } from './reading.ts';

/** Computes the value of a key from the input's value; undefined gives no value. Must be pure. */
export type MapFunction<I, V> = (reading: Reading, value: I, key: string) => V | undefined;

/** One value for each value of another collection, computed by a pure function. */
export class Mapped<I, V> extends Keyed<V> implements CellOwner {
  readonly #input: Keyed<I>;
  readonly #compute: MapFunction<I, V>;
  readonly #same: (left: V, right: V) => boolean;
  readonly #cells = new Map<string, Cell>();

  /** `same` is true for values that no reader can tell apart: then nothing that read the old one is computed again. */
  constructor(
    graph: Graph,
    input: Keyed<I>,
    compute: MapFunction<I, V>,
    same: (left: V, right: V) => boolean = Object.is,
  ) {
    super(graph);
    this.#input = input;
    this.#compute = compute;
    this.#same = same;
    input.onChange((key) => graph.mark(this.#cell(key)));
  }

  get size(): number {
    return this.#cells.size;
  }

  get(key: string): V | undefined {
    return this.#cells.get(key)?.value as V | undefined;
  }

  /** The values, without an order. */
  *values(): Iterable<V> {
    for (const { value } of this.#cells.values()) if (value !== undefined) yield value as V;
  }

  recompute(cell: Cell): void {
    const input = this.#input.get(cell.key);
    const before = cell.value as V | undefined;
    const result = this.graph.compute(cell, (reading) =>
      input === undefined ? undefined : this.#compute(reading, input, cell.key),
    );
    if (input === undefined) this.#cells.delete(cell.key);
    if (result === null) return;
    const after = result.value;
    if (before === after) return;
    if (before !== undefined && after !== undefined && this.#same(before, after)) return;
    cell.value = after;
    this.tell(cell.key, before, after);
  }

  // The cells of a mapped collection live as long as their input; readers hold watches.
  released(): void {}
  drop(): void {}

  #cell(key: string): Cell {
    const known = this.#cells.get(key);
    if (known !== undefined) return known;
    const made = new Cell(this, key);
    this.#cells.set(key, made);
    return made;
  }
}
