/** A position in a table's change log, and the changes that may be taken from there. Pure. */
import type { TableChange, TableEntry } from './contract.ts';
import { decodeLogEntry } from './rows.ts';

/** Why a table must be copied again. */
export type ResyncReason =
  /** The table was replaced. */
  | 'epoch'
  /** Changes are missing in the log. */
  | 'gap'
  /** The table is older than what was read of it: Redis lost writes. */
  | 'rollback';

/** A log entry as XREAD gives it. */
export type RawEntry = readonly [id: Buffer | string, fields: readonly Buffer[]];

/** The changes in a slice of the log. */
export interface TakenEntries {
  readonly changes: readonly TableChange[];
  readonly malformed: readonly { readonly id: string; readonly reason: string }[];
  /** The reason to copy again after these changes; null when the log can be followed further. */
  readonly end: ResyncReason | null;
}

/** Walks the log. It passes each change exactly once, in order, and notices missing ones. */
export class LogCursor {
  readonly epoch: string;
  #id: string;
  #version: number;
  /** Rows that the copy already had newer than its own start. */
  readonly #overlap = new Map<string, number>();
  #overlapEnd = 0;

  /** Starts behind entry `id`, with a copy that began when the table had `version`. */
  constructor(start: { readonly epoch: string; readonly version: number; readonly id: string }) {
    this.epoch = start.epoch;
    this.#version = start.version;
    this.#id = start.id;
  }

  /** The last entry taken. */
  get id(): string {
    return this.#id;
  }

  /** The version after the last change taken. */
  get version(): number {
    return this.#version;
  }

  /** Notes a row of the copy: a change of the log that is not newer than it must not be applied. */
  sawRow(entry: TableEntry): void {
    if (entry.version <= this.#version) return;
    this.#overlap.set(entry.key, entry.version);
    this.#overlapEnd = Math.max(this.#overlapEnd, entry.version);
  }

  /** Takes the next entries of the log. */
  take(entries: readonly RawEntry[]): TakenEntries {
    const changes: TableChange[] = [];
    const malformed: { id: string; reason: string }[] = [];
    for (const [rawId, fields] of entries) {
      const id = rawId.toString();
      const entry = decodeLogEntry(fields);
      if (typeof entry === 'string') {
        malformed.push({ id, reason: entry });
        this.#id = id;
        continue;
      }
      if (entry.epoch !== this.epoch) return { changes, malformed, end: 'epoch' };
      this.#id = id;
      if (entry.kind === 'epoch' || entry.change.version <= this.#version) continue;
      if (entry.change.version !== this.#version + 1) return { changes, malformed, end: 'gap' };
      this.#version = entry.change.version;
      if (entry.change.version > (this.#overlap.get(entry.change.key) ?? 0)) {
        changes.push(entry.change);
      }
      if (this.#version >= this.#overlapEnd) this.#overlap.clear();
    }
    return { changes, malformed, end: null };
  }
}
