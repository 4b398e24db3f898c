import type { TableChange, TableEntry, TableHandler } from '../../lib/bus/contract.ts';

/** A table handler that keeps the rows as bytes. */
export class RowsCopy implements TableHandler {
  /** The rows held; the next full copy replaces them when complete. */
  rows = new Map<string, Uint8Array>();
  copies = 0;
  #next = new Map<string, Uint8Array>();

  onReset(): void {
    this.#next = new Map();
  }

  onEntries(entries: readonly TableEntry[]): void {
    for (const { key, value } of entries) this.#next.set(key, new Uint8Array(value));
  }

  onSynced(): void {
    this.rows = this.#next;
    this.copies += 1;
  }

  onChanges(changes: readonly TableChange[]): void {
    for (const { key, value } of changes) {
      if (value === null) this.rows.delete(key);
      else this.rows.set(key, new Uint8Array(value));
    }
  }
}
