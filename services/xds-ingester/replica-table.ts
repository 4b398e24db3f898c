/** A table in memory, and the rows of it that Redis does not have yet. Pure. */
import type { RowChange, StoredRow } from '../../lib/bus/contract.ts';

/** Rows in memory with the set of keys still to be written. */
export class ReplicaTable {
  /** Called with the key of each row that was set or deleted. */
  onChange: (key: string) => void = () => undefined;
  #rows = new Map<string, StoredRow>();
  /** Keys that changed since they were last taken, in order of change. */
  readonly #dirty = new Set<string>();
  /** Keys that are being written: Redis has them only once it has confirmed them. */
  readonly #taken = new Set<string>();

  get size(): number {
    return this.#rows.size;
  }

  /** Number of keys not known to be written; a key that changes while it is written counts twice. */
  get dirty(): number {
    return this.#dirty.size + this.#taken.size;
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

  /** Replaces the rows by those of Redis; nothing is dirty then. */
  load(rows: Map<string, StoredRow>): void {
    this.#rows = new Map(rows);
    this.written();
    this.#dirty.clear();
  }

  /** Marks the rows that must be written to make Redis, which holds `stored`, equal to this table. */
  diff(stored: ReadonlyMap<string, StoredRow>): void {
    this.written();
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

  /** Takes up to `max` changes to be written. They stay dirty until {@link written}; {@link restore} offers them again. */
  take(max: number): readonly RowChange[] {
    const changes: RowChange[] = [];
    for (const key of this.#dirty) {
      if (changes.length >= max) break;
      const row = this.#rows.get(key);
      changes.push(
        row === undefined ? { key, value: null } : { key, value: row.value, tag: row.tag },
      );
      this.#dirty.delete(key);
      this.#taken.add(key);
    }
    return changes;
  }

  /** Takes all rows, to replace those of Redis; otherwise as {@link take}. */
  takeAll(): readonly (readonly [key: string, value: Uint8Array, tag: string])[] {
    for (const key of this.#dirty) this.#taken.add(key);
    this.#dirty.clear();
    return [...this.#rows].map(([key, { value, tag }]) => [key, value, tag] as const);
  }

  /** Call when Redis has the rows that were taken. */
  written(): void {
    this.#taken.clear();
  }

  /** Call when Redis may lack the rows that were taken. */
  restore(): void {
    // They changed before the keys that became dirty meanwhile.
    const later = [...this.#dirty].filter((key) => !this.#taken.has(key));
    this.#dirty.clear();
    for (const key of this.#taken) this.#dirty.add(key);
    for (const key of later) this.#dirty.add(key);
    this.#taken.clear();
  }

  #touch(key: string): void {
    // Behind the keys that are dirty already, so that changes are written in order.
    this.#dirty.delete(key);
    this.#dirty.add(key);
    this.onChange(key);
  }
}

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  return Buffer.compare(left, right) === 0;
}
