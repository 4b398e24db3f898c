import { assert } from '../../../lib/errors/assert.ts';
import type { PackedRows } from './protocol.ts';

/** A row to pack; a null value removes it. */
export interface Row {
  readonly key: string;
  readonly value: Uint8Array | null;
}

/** Copies rows into a new buffer, which may be transferred. */
export function packRows(rows: readonly Row[]): PackedRows {
  const size = rows.reduce((total, { value }) => total + (value?.length ?? 0), 0);
  const data = new Uint8Array(size);
  const ends = new Int32Array(rows.length);
  let end = 0;
  for (const [index, { value }] of rows.entries()) {
    if (value === null) {
      ends[index] = -1;
      continue;
    }
    data.set(value, end);
    end += value.length;
    ends[index] = end;
  }
  return { keys: rows.map((row) => row.key), ends, data };
}

/** Yields the rows as views into the buffer; copy a value to keep it. */
export function* unpackRows({ keys, ends, data }: PackedRows): Generator<Row> {
  assert(keys.length === ends.length, 'a packed row has a key and an end');
  let start = 0;
  for (const [index, key] of keys.entries()) {
    const end = ends[index] ?? -1;
    if (end === -1) {
      yield { key, value: null };
      continue;
    }
    yield { key, value: data.subarray(start, end) };
    start = end;
  }
}
