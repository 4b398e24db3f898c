import type { IncomingMessage } from 'node:http';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import { MAX_MANIFEST_BYTES } from '../limits.ts';

/** A request that is answered with this status. */
export class HttpRefusal extends Error {
  readonly status: number;

  constructor(status: number, reason: string) {
    super(reason);
    this.status = status;
  }
}

/** The request's body as JSON. Throws {@link HttpRefusal} when it is too large or not JSON. */
export async function readJson(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_MANIFEST_BYTES) {
      throw new HttpRefusal(413, `the body is larger than ${MAX_MANIFEST_BYTES} bytes`);
    }
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
  } catch (error) {
    throw new HttpRefusal(400, `the body is not JSON: ${errorText(error)}`);
  }
}
