/** A table as this process holds it, and which of its rows Redis does not have yet. Pure. */
import type { RowChange, StoredRow } from '../../lib/bus/contract.ts';

/** Rows in memory with the set of keys still to be written. */
export class ReplicaTable {
  #rows = new Map<string, StoredRow>();
  /** In order of change. A key stands once, so this never outgrows the keys there are and were. */
  readonly #dirty = new Set<string>();

  get size(): number {
    return this.#rows.size;
  }

  /** Keys not written yet. */
  get dirty(): number {
    return this.#dirty.size;
  }

  get(key: string): StoredRow | undefined {
    return this.#rows.get(key);
  }

  entries(): IterableIterator<[string, StoredRow]> {
    return this.#rows.entries();
  }

  set(key: string, row: StoredRow): void {
    const old = this.#rows.get(key);
    if (old !== undefined && old.tag === row.tag && sameBytes(old.value, row.value)) return;
    this.#rows.set(key, row);
    this.#touch(key);
  }

  /** True when the row was there. */
  delete(key: string): boolean {
    if (!this.#rows.delete(key)) return false;
    this.#touch(key);
    return true;
  }

  /** Takes what Redis has as its own; nothing is dirty then. */
  load(rows: Map<string, StoredRow>): void {
    this.#rows = new Map(rows);
    this.#dirty.clear();
  }

  /** Marks what must be written to make Redis, which has `stored`, equal to this. */
  diff(stored: ReadonlyMap<string, StoredRow>): void {
    this.#dirty.clear();
    for (const key of stored.keys()) {
      if (!this.#rows.has(key)) this.#dirty.add(key);
    }
    for (const [key, row] of this.#rows) {
      const old = stored.get(key);
      if (old === undefined || old.tag !== row.tag || !sameBytes(old.value, row.value)) {
        this.#dirty.add(key);
      }
    }
  }

  /** Takes up to `max` changes off the dirty set; give them back with {@link restore} when they were not written. */
  take(max: number): readonly RowChange[] {
    const changes: RowChange[] = [];
    for (const key of this.#dirty) {
      if (changes.length >= max) break;
      const row = this.#rows.get(key);
      changes.push(
        row === undefined ? { key, value: null } : { key, value: row.value, tag: row.tag },
      );
      this.#dirty.delete(key);
    }
    return changes;
  }

  /** See {@link take}. */
  restore(changes: readonly RowChange[]): void {
    for (const { key } of changes) this.#dirty.add(key);
  }

  /** Everything, as it is now; nothing is dirty then. */
  *takeAll(): Generator<readonly [string, Uint8Array, string]> {
    const rows = [...this.#rows];
    this.#dirty.clear();
    for (const [key, { value, tag }] of rows) yield [key, value, tag];
  }

  #touch(key: string): void {
    // Behind what is dirty already, so that changes are written in their order.
    this.#dirty.delete(key);
    this.#dirty.add(key);
  }
}

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}
