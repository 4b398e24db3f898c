import type { Redis } from 'ioredis';
import { COPY_SLICE_ROWS } from './limits.ts';

/** A field of a hash. */
export type HashField = readonly [field: Buffer, value: Buffer];

/** Walks a hash in slices. A field that changes meanwhile may come twice or in either form. */
export async function* scanHash(client: Redis, key: string): AsyncGenerator<readonly HashField[]> {
  let cursor = '0';
  do {
    const reply: [Buffer, Buffer[]] = await client.hscanBuffer(
      key,
      cursor,
      'COUNT',
      COPY_SLICE_ROWS,
    );
    cursor = reply[0].toString();
    yield pairs(reply[1]);
  } while (cursor !== '0');
}

function pairs(flat: readonly Buffer[]): readonly HashField[] {
  const fields: HashField[] = [];
  for (let index = 0; index + 1 < flat.length; index += 2) {
    const field = flat[index];
    const value = flat[index + 1];
    if (field !== undefined && value !== undefined) fields.push([field, value]);
  }
  return fields;
}
