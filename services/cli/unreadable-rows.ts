import type { UnreadableRow } from '../../lib/state/listing.ts';

/** A warning for each row that could not be read. */
export function unreadableRows(table: string, rows: readonly UnreadableRow[]): readonly string[] {
  return rows.map(({ key, reason }) => `row ${key} of ${table} cannot be read: ${reason}`);
}
