import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { RESPONSE_STALL_MS } from '../limits.ts';

/** Small texts are joined until they make a write of this size, characters. */
const WRITE_CHARS = 65_536;

/**
 * Sends texts as they are made and as fast as the client takes them. Throws a failure before the first write, so that it can
 * still be answered. The connection is cut on a later failure, and when the client takes nothing for long.
 */
export async function sendTexts(
  response: ServerResponse,
  contentType: string,
  texts: AsyncIterable<string>,
): Promise<void> {
  const closed = new AbortController();
  response.once('close', () => closed.abort());
  response.setTimeout(RESPONSE_STALL_MS, () => response.destroy());
  let held = '';
  let chars = 0;
  for await (const text of texts) {
    held += text;
    chars += text.length;
    if (held.length < WRITE_CHARS) continue;
    if (closed.signal.aborted) return;
    if (!response.headersSent) response.writeHead(200, { 'content-type': contentType });
    const flowing = response.write(held);
    held = '';
    // The client is gone; returning closes the iterator.
    if (!flowing && !(await drained(response, closed.signal))) return;
  }
  if (closed.signal.aborted) return;
  if (!response.headersSent) {
    const length = { 'content-length': Buffer.byteLength(held) };
    response.writeHead(200, {
      'content-type': contentType,
      ...(chars === held.length ? length : {}),
    });
  }
  response.end(held);
}

/** Returns false when the client went instead. */
async function drained(response: ServerResponse, signal: AbortSignal): Promise<boolean> {
  try {
    await once(response, 'drain', { signal });
    return true;
  } catch {
    return false;
  }
}
