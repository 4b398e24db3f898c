import type { TableHandler } from '../../../lib/bus/contract.ts';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { LocalSource } from '../config/local-state.ts';
import { FEED_ROWS_PER_MESSAGE } from '../limits.ts';
import { LocalState } from './local-state.ts';
import type { LocalStateDeps } from './local-state.ts';
import { packRows } from './packed-rows.ts';
import type { Row } from './packed-rows.ts';
import { STATE_TABLES } from './protocol.ts';
import type { FeedTarget, StateTable } from './protocol.ts';

/** Feeds the state thread until it is closed. */
export interface Feed {
  close(): Promise<void>;
}

/** Starts to feed `target` from `local`, or from Redis when that is null. Rejects as {@link LocalState.start} does. */
export async function startFeed(
  local: LocalSource | null,
  deps: LocalStateDeps & { readonly bus: Bus },
  target: FeedTarget,
): Promise<Feed> {
  if (local === null) return followTables(deps.bus, target);
  const state = new LocalState(local, deps, target);
  try {
    await state.start();
  } catch (error) {
    await state.close();
    throw error;
  }
  return state;
}

/** Follows the tables of the mesh in Redis, and feeds them no faster than `target` takes them. */
export function followTables(bus: Pick<Bus, 'reader'>, target: FeedTarget): Feed {
  const readers = STATE_TABLES.map((table) => bus.reader(table, 'mesh', handler(table, target)));
  return { close: async () => void (await Promise.all(readers.map((reader) => reader.close()))) };
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
