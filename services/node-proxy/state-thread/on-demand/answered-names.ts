/** Which names of the mesh are answered by the rows that are held. Pure. */
import type { TableSink } from '../../../../lib/bus/table-mirror.ts';
import { ON_DEMAND_ROW } from '../../../../lib/state/wanted-name.ts';

/** A state of the table `addresses`. */
export interface TablePosition {
  readonly epoch: string;
  readonly version: number;
}

interface Row {
  /** `<epoch>/<version>` of the table `addresses` that holds the answer. */
  stamp: string;
  /** The rows held contain the answer. */
  known: boolean;
  /** A stamp that is worth nothing any more, because what it told of has gone. */
  spent: string | null;
}

/**
 * Follows the table `names`. It and the table `addresses` are read apart, so a name counts as answered only once the rows of that state
 * of `addresses` are held that its row names.
 */
export class AnsweredNames implements TableSink {
  readonly #rows = new Map<string, Row>();
  #position: TablePosition | null = null;
  #onDemand = false;

  /** True when the ingester follows the mesh on demand. */
  get onDemand(): boolean {
    return this.#onDemand;
  }

  get size(): number {
    return this.#rows.size;
  }

  *keys(): Generator<string> {
    yield* this.#rows.keys();
    if (this.#onDemand) yield ON_DEMAND_ROW;
  }

  apply(name: string, value: Uint8Array | null): void {
    if (name === ON_DEMAND_ROW) {
      this.#onDemand = value !== null;
      return;
    }
    if (value === null) {
      this.#rows.delete(name);
      return;
    }
    const stamp = Buffer.from(value).toString();
    const row = this.#rows.get(name);
    if (row === undefined) this.#rows.set(name, { stamp, known: false, spent: null });
    else row.stamp = stamp;
  }

  /** The table `addresses` is held as of this state. */
  reached(position: TablePosition): void {
    this.#position = position;
  }

  /** True when the rows held tell all there is under the name. */
  knows(name: string): boolean {
    const row = this.#rows.get(name);
    if (row === undefined) return false;
    row.known ||= row.stamp !== row.spent && this.#holds(row.stamp);
    return row.known;
  }

  /**
   * The last resource under the name has gone. Another may have come in its place, so that the name is not known until the ingester
   * has asked again.
   */
  emptied(name: string): void {
    const row = this.#rows.get(name);
    if (row === undefined || !this.knows(name)) return;
    row.known = false;
    row.spent = row.stamp;
  }

  #holds(stamp: string): boolean {
    const slash = stamp.indexOf('/');
    if (this.#position === null || stamp.slice(0, slash) !== this.#position.epoch) return false;
    return Number(stamp.slice(slash + 1)) <= this.#position.version;
  }
}
