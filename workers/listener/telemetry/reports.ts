import { setImmediate as turn } from 'node:timers/promises';
import { RECORDS_PER_MESSAGE } from '../limits.ts';

/**
 * Sends records in messages of a few, and lets the thread serve its connections in between. The last message is marked;
 * it may be empty. Records are made as they are sent. Never rejects.
 */
export async function sendRecords<Item>(
  records: Iterable<Item>,
  send: (records: readonly Item[], done: boolean) => void,
): Promise<void> {
  let batch: Item[] = [];
  for (const record of records) {
    batch.push(record);
    if (batch.length < RECORDS_PER_MESSAGE) continue;
    send(batch, false);
    batch = [];
    await turn();
  }
  send(batch, true);
}

/** The items that `pick` finds in each of `sources`, which are listed now. */
export function* concat<Source, Item>(
  sources: Iterable<Source>,
  pick: (source: Source) => Iterable<Item>,
): Generator<Item> {
  const listed = [...sources];
  for (const source of listed) yield* pick(source);
}
