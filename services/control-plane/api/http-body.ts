import type { IncomingMessage } from 'node:http';
import { errorText } from '../../../lib/errors/mesh-error.ts';

/** A request that is answered with this status. */
export class HttpRefusal extends Error {
  readonly status: number;

  constructor(status: number, reason: string) {
    super(reason);
    this.status = status;
  }
}

/** The request's body. Throws {@link HttpRefusal} when it is larger than `limitBytes`. */
export async function readBody(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limitBytes) {
      throw new HttpRefusal(413, `the body is larger than ${limitBytes} bytes`);
    }
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** The body as JSON. Throws {@link HttpRefusal} when it is too large or not JSON. */
export async function readJson(request: IncomingMessage, limitBytes: number): Promise<unknown> {
  const body = await readBody(request, limitBytes);
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch (error) {
    throw new HttpRefusal(400, `the body is not JSON: ${errorText(error)}`);
  }
}
