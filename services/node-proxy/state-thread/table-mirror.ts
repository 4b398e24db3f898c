import { unpackRows } from './packed-rows.ts';
import type { FeedStep } from './protocol.ts';
import type { TimeSlice } from '../../../lib/async/time-slice.ts';

/** Where the rows of one table go. */
export interface TableSink {
  /** Keys of all rows held; may be walked while rows come and go. */
  keys(): Iterable<string>;
  /** Takes the row, null to remove it. The value is a view that is not valid afterwards. */
  apply(key: string, value: Uint8Array | null): void;
}

/**
 * Follows one table. Rows of a full copy are taken as they come; those that were held before and are not in the
 * copy stay, and answer, until it is complete.
 */
export class TableMirror {
  readonly #sink: TableSink;
  #seen: Set<string> | null = null;
  #synced = false;

  constructor(sink: TableSink) {
    this.#sink = sink;
  }

  /** True once a full copy was applied, for good. */
  get synced(): boolean {
    return this.#synced;
  }

  /** Applies one step, in slices. */
  async take(step: FeedStep, slice: TimeSlice): Promise<void> {
    switch (step.kind) {
      case 'reset':
        this.#seen = new Set();
        break;
      case 'entries':
      case 'changes':
        for (const { key, value } of unpackRows(step.rows)) {
          if (value !== null) this.#seen?.add(key);
          this.#sink.apply(key, value);
          await slice.breathe();
        }
        break;
      case 'synced':
        await this.#complete(slice);
        break;
    }
  }

  async #complete(slice: TimeSlice): Promise<void> {
    const seen = this.#seen;
    this.#seen = null;
    if (seen === null) return;
    for (const key of this.#sink.keys()) {
      if (!seen.has(key)) this.#sink.apply(key, null);
      await slice.breathe();
    }
    this.#synced = true;
  }
}
