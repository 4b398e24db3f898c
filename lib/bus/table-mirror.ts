import { TimeSlice } from '../async/time-slice.ts';
import type { TableHandler } from './contract.ts';
import { MIRROR_SLICE_MS } from './limits.ts';

/** A row of a table; a null value removes it. */
export interface MirroredRow {
  readonly key: string;
  readonly value: Uint8Array | null;
}

/** Holds the rows of one mirrored table. */
export interface TableSink {
  /** Keys of all rows held. The caller may apply rows while it walks them. */
  keys(): Iterable<string>;
  /** Takes a row; null removes it. The value is a view that is valid only during the call. */
  apply(key: string, value: Uint8Array | null): void;
  /** Called after each step of the table, when its rows are in force. */
  applied?(): void;
}

/**
 * Keeps a process's copy of a table in its sink. Rows of a full copy are taken as they come. Rows that were held before
 * and are not in the copy stay in force until the copy is complete.
 */
export class TableMirror implements TableHandler {
  readonly #sink: TableSink;
  readonly #sliceMs: number;
  /** Rows held before the running copy that it has not brought yet; null between copies. */
  #missing: Set<string> | null = null;
  #synced = false;

  /** `sliceMs` is how long rows may hold the event loop at a time. */
  constructor(sink: TableSink, sliceMs: number = MIRROR_SLICE_MS) {
    this.#sink = sink;
    this.#sliceMs = sliceMs;
  }

  /** True once a full copy was applied; stays true. */
  get synced(): boolean {
    return this.#synced;
  }

  /** True while a full copy is taken; the rows held may then be of two epochs. */
  get copying(): boolean {
    return this.#missing !== null;
  }

  async onReset(): Promise<void> {
    const slice = new TimeSlice(this.#sliceMs);
    const held = new Set<string>();
    this.#missing = held;
    for (const key of this.#sink.keys()) {
      held.add(key);
      await slice.breathe();
    }
  }

  onEntries(rows: Iterable<MirroredRow>): Promise<void> {
    return this.onChanges(rows);
  }

  async onChanges(rows: Iterable<MirroredRow>): Promise<void> {
    const slice = new TimeSlice(this.#sliceMs);
    for (const { key, value } of rows) {
      this.#missing?.delete(key);
      this.#sink.apply(key, value);
      await slice.breathe();
    }
    this.#sink.applied?.();
  }

  async onSynced(): Promise<void> {
    const slice = new TimeSlice(this.#sliceMs);
    for (const key of this.#missing ?? []) {
      this.#sink.apply(key, null);
      await slice.breathe();
    }
    this.#missing = null;
    this.#synced = true;
    this.#sink.applied?.();
  }
}
