/** Decodes rows and log entries of Redis, as lib/bus/lua/table-*.lua write them. Pure. */
import type { TableChange, TableEntry } from './contract.ts';

const VERSION_BYTES = 8;

/** Decodes a row of the data hash; null when it is malformed. */
export function decodeRow(key: Buffer, row: Buffer): TableEntry | null {
  if (row.length < VERSION_BYTES) return null;
  const version = row.readBigUInt64BE(0);
  if (version > BigInt(Number.MAX_SAFE_INTEGER)) return null;
  return { key: key.toString(), version: Number(version), value: row.subarray(VERSION_BYTES) };
}

/** An entry of the change log. */
export type LogEntry =
  | { readonly kind: 'change'; readonly epoch: string; readonly change: TableChange }
  /** A new epoch began. */
  | { readonly kind: 'epoch'; readonly epoch: string; readonly version: number };

/** Decodes an entry of the change log from its flat field list. Returns a text that says what is wrong when it is malformed. */
export function decodeLogEntry(fields: readonly Buffer[]): LogEntry | string {
  const byName = new Map<string, Buffer>();
  for (let index = 0; index + 1 < fields.length; index += 2) {
    const value = fields[index + 1];
    if (value !== undefined) byName.set(String(fields[index]), value);
  }
  const epoch = byName.get('e')?.toString() ?? '';
  const versionText = byName.get('v')?.toString() ?? '';
  const version = Number(versionText);
  if (epoch === '') return 'no epoch';
  if (!/^\d{1,16}$/.test(versionText) || !Number.isSafeInteger(version)) return 'no version';
  const op = byName.get('o')?.toString();
  if (op === 'e') return { kind: 'epoch', epoch, version };
  const key = byName.get('k')?.toString() ?? '';
  if (key === '') return 'no key';
  if (op === 'd') return { kind: 'change', epoch, change: { key, version, value: null } };
  const value = byName.get('b');
  if (op !== 's') return 'unknown operation';
  if (value === undefined) return 'no value';
  return { kind: 'change', epoch, change: { key, version, value } };
}
