/** Answers and request bodies of the project's HTTP servers. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { errorText } from '../errors/mesh-error.ts';

/** A request that is answered with this status and the message as its reason. */
export class HttpRefusal extends Error {
  readonly status: number;

  constructor(status: number, reason: string) {
    super(reason);
    this.status = status;
  }
}

/** Writes `body` as JSON with the given status. */
export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  send(response, status, 'application/json', `${JSON.stringify(body)}\n`);
}

/** Writes `text` as plain text with the given status. */
export function sendText(response: ServerResponse, status: number, text: string): void {
  send(response, status, 'text/plain; charset=utf-8', text);
}

function send(response: ServerResponse, status: number, type: string, text: string): void {
  response.writeHead(status, { 'content-type': type, 'content-length': Buffer.byteLength(text) });
  response.end(text);
}

/** Reads the request's body. Throws {@link HttpRefusal} when it is larger than `limitBytes`. */
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

/** Reads the body as JSON. Throws {@link HttpRefusal} when it is too large or not JSON. */
export async function readJson(request: IncomingMessage, limitBytes: number): Promise<unknown> {
  const body = await readBody(request, limitBytes);
  try {
    return JSON.parse(body.toString('utf8')) as unknown;
  } catch (error) {
    throw new HttpRefusal(400, `the body is not JSON: ${errorText(error)}`);
  }
}
