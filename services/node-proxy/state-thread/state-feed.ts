import type { TableHandler } from '../../../lib/bus/contract.ts';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { TableReader } from '../../../lib/bus/table-reader.ts';
import { FEED_ROWS_PER_MESSAGE } from '../limits.ts';
import { packRows } from './packed-rows.ts';
import type { Row } from './packed-rows.ts';
import { STATE_TABLES } from './protocol.ts';
import type { FeedStep, StateTable } from './protocol.ts';

/** Takes the steps of a table; resolves when it wants the next. */
export type FeedTarget = (table: StateTable, step: FeedStep) => Promise<void>;

/** Follows the tables of the mesh in Redis and hands them to the state thread, no faster than it takes them. */
export class StateFeed {
  readonly #readers: readonly TableReader[];

  constructor(bus: Pick<Bus, 'reader'>, target: FeedTarget) {
    this.#readers = STATE_TABLES.map((table) => bus.reader(table, 'mesh', handler(table, target)));
  }

  /** Stops following. */
  async close(): Promise<void> {
    await Promise.all(this.#readers.map((reader) => reader.close()));
  }
}

function handler(table: StateTable, target: FeedTarget): TableHandler {
  const send = async (kind: 'entries' | 'changes', rows: readonly Row[]): Promise<void> => {
    for (let start = 0; start < rows.length; start += FEED_ROWS_PER_MESSAGE) {
      const part = rows.slice(start, start + FEED_ROWS_PER_MESSAGE);
      await target(table, { kind, rows: packRows(part) });
    }
  };
  return {
    onReset: () => target(table, { kind: 'reset' }),
    onEntries: (entries) => send('entries', entries),
    onSynced: () => target(table, { kind: 'synced' }),
    onChanges: (changes) => send('changes', changes),
  };
}
