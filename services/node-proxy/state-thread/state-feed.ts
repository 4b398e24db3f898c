import type { TableHandler } from '../../../lib/bus/contract.ts';
import type { Bus } from '../../../lib/bus/redis-bus.ts';
import type { LocalSource } from '../config/local-state.ts';
import { FEED_ROWS_PER_MESSAGE } from '../limits.ts';
import type { LocalStateDeps } from './local-state.ts';
import { packRows } from './packed-rows.ts';
import type { Row } from './packed-rows.ts';
import { STATE_TABLES } from './protocol.ts';
import type { FeedTarget, PackedRows, StateTable } from './protocol.ts';

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
  // The formats of the file and of its resources, which a proxy of a mesh does not need.
  const { LocalState } = await import('./local-state.ts');
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
  return {
    onReset: (epoch, version) => target(table, { kind: 'reset', at: { epoch, version } }),
    onEntries: async (entries) => {
      for (const rows of parts(entries)) await target(table, { kind: 'entries', rows });
    },
    onSynced: () => target(table, { kind: 'synced' }),
    onChanges: async (changes, version) => {
      const all = parts(changes);
      for (const [index, rows] of all.entries()) {
        const reached = index === all.length - 1 ? { version } : {};
        await target(table, { kind: 'changes', rows, ...reached });
      }
    },
  };
}

/** Packs rows for one message or more. */
function parts(rows: readonly Row[]): readonly PackedRows[] {
  const packed = [packRows(rows.slice(0, FEED_ROWS_PER_MESSAGE))];
  for (let start = FEED_ROWS_PER_MESSAGE; start < rows.length; start += FEED_ROWS_PER_MESSAGE) {
    packed.push(packRows(rows.slice(start, start + FEED_ROWS_PER_MESSAGE)));
  }
  return packed;
}
