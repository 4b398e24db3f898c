/** Writes long answers in chunks of bounded size, at the reader's pace. */
import type { ServerResponse } from 'node:http';
import { firstEvent } from '../../../lib/async/first-event.ts';
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import { CHUNK_CHARACTERS, SLICE_MS } from '../limits.ts';

/** Joins texts to chunks of {@link CHUNK_CHARACTERS}; the last text of a chunk may exceed it. */
export function* chunksOf(texts: Iterable<string>): Generator<string> {
  let chunk = '';
  for (const text of texts) {
    chunk += text;
    if (chunk.length < CHUNK_CHARACTERS) continue;
    yield chunk;
    chunk = '';
  }
  if (chunk !== '') yield chunk;
}

/**
 * Writes the texts in chunks, each after the reader has taken the previous one. The texts of a chunk are made and written
 * in one turn of the event loop. Stops when the reader is gone or the answer is ended.
 */
export async function writeInChunks(
  response: ServerResponse,
  texts: Iterable<string>,
): Promise<void> {
  const slice = new TimeSlice(SLICE_MS);
  for (const chunk of chunksOf(texts)) {
    if (!response.write(chunk)) await firstEvent(response, ['drain', 'close']);
    await slice.breathe();
    if (response.destroyed || response.writableEnded) return;
  }
}
