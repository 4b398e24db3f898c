import { MeshError } from '../errors/mesh-error.ts';
import { COPY_SLICE_ROWS } from './limits.ts';
import type { RedisClient } from './redis-client.ts';

/** A field of a hash. */
export type HashField = readonly [field: Buffer, value: Buffer];

/**
 * Walks a hash in slices. A field that changes meanwhile may come twice or in either form. Throws BUS_UNAVAILABLE when
 * another server goes on with it (a restart, a failover, a slot that moves): a cursor means something only to the server that
 * gave it, and fields would be left out silently.
 */
export async function* scanHash(
  client: RedisClient,
  key: string,
): AsyncGenerator<readonly HashField[]> {
  let cursor = '0';
  let server = '';
  do {
    const replies = await client
      .multi()
      .hscanBuffer(key, cursor, 'COUNT', COPY_SLICE_ROWS)
      .info('server')
      .exec();
    const [scanned, info] = (replies ?? []).map(([error, reply]) => {
      if (error !== null) throw error;
      return reply;
    });
    const [next, flat] = scanned as [Buffer, Buffer[]];
    const runId = /^run_id:(\S+)/m.exec(String(info))?.[1] ?? '';
    if (server !== '' && runId !== server) {
      throw new MeshError('BUS_UNAVAILABLE', `another server went on with the rows of ${key}`);
    }
    server = runId;
    cursor = next.toString();
    yield pairs(flat);
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
