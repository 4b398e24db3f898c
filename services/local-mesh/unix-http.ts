/** HTTP client, over unix sockets as a rule, for the supervisor, the control plane and the actors' admin servers. */
import type { IncomingMessage, RequestOptions } from 'node:http';
import type { Duplex } from 'node:stream';
import { request } from '../../lib/http/node-http.ts';
import { splitLines } from '../../lib/http/split-lines.ts';
import type { Endpoint } from '../../lib/config/fields.ts';
import { MeshError, asMeshError } from '../../lib/errors/mesh-error.ts';

/** Largest answer read into memory; the connection lists of a busy node are the largest answers. */
const ANSWER_LIMIT_BYTES = 256 * 1024 * 1024;

/** A complete answer. */
export interface HttpAnswer {
  readonly status: number;
  readonly body: string;
}

/** A way to a server that no address names. */
export interface DialledServer {
  /** Names the server in errors. */
  readonly name: string;
  /** Opens a connection, which emits `timeout` after so long without a byte. Throws a MeshError. */
  dial(timeoutMs: number): Promise<Duplex>;
}

/** A server: a unix socket, the address of one in another container's network, or a way to it. */
export type HttpServerPlace = string | Extract<Endpoint, { readonly kind: 'tcp' }> | DialledServer;

/** A request. */
export interface HttpQuestion {
  readonly socket: HttpServerPlace;
  readonly method?: 'GET' | 'POST' | 'PUT' | 'DELETE';
  readonly path: string;
  /** Sent as JSON. */
  readonly body?: unknown;
  /** Longest time without a byte; default 10 s. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** Sends a request and reads the whole answer, of any status. Throws STATE_UNAVAILABLE when there is no answer. */
export async function ask(question: HttpQuestion): Promise<HttpAnswer> {
  try {
    const response = await open(question);
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of response) {
      const bytes = chunk as Buffer;
      size += bytes.length;
      if (size > ANSWER_LIMIT_BYTES) throw new Error('the answer is too long');
      chunks.push(bytes);
    }
    return { status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString('utf8') };
  } catch (error) {
    throw unavailable(question, error);
  }
}

/** Requests JSON. Throws STATE_UNAVAILABLE with the answer's text for a status other than 200. */
export async function askJson<T>(question: HttpQuestion): Promise<T> {
  const answer = await ask(question);
  if (answer.status !== 200) {
    throw new MeshError(
      'STATE_UNAVAILABLE',
      `${socketName(question)}${question.path} answered ${answer.status}: ${answer.body.trim().slice(0, 500)}`,
      { detail: { status: answer.status } },
    );
  }
  return JSON.parse(answer.body) as T;
}

/** Reads a stream of JSON lines until it ends or the signal aborts. Throws STATE_UNAVAILABLE when it breaks. */
export async function* askLines(question: HttpQuestion): AsyncGenerator<unknown> {
  try {
    const response = await open({ ...question, timeoutMs: question.timeoutMs ?? 0 });
    if (response.statusCode !== 200) {
      response.resume();
      throw new Error(`status ${response.statusCode ?? 0}`);
    }
    for await (const line of splitLines(response)) yield JSON.parse(line);
  } catch (error) {
    if (question.signal?.aborted === true) return;
    throw unavailable(question, error);
  }
}

async function open(question: HttpQuestion): Promise<IncomingMessage> {
  const timeoutMs = question.timeoutMs ?? 10_000;
  const place = await placeOf(question.socket, timeoutMs);
  const body = question.body === undefined ? null : Buffer.from(JSON.stringify(question.body));
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const outgoing = request({
    method: question.method ?? 'GET',
    path: question.path,
    agent: false,
    timeout: timeoutMs,
    ...place,
    ...(question.signal === undefined ? {} : { signal: question.signal }),
    headers:
      body === null
        ? {}
        : { 'content-type': 'application/json', 'content-length': body.byteLength },
  });
  outgoing.once('response', resolve);
  outgoing.once('timeout', () => outgoing.destroy(new Error('no answer in time')));
  outgoing.on('error', reject);
  outgoing.end(body ?? undefined);
  return promise;
}

async function placeOf(socket: HttpServerPlace, timeoutMs: number): Promise<RequestOptions> {
  if (typeof socket === 'string') return { socketPath: socket };
  if (!('dial' in socket)) return { host: socket.host || 'localhost', port: socket.port };
  const connection = await socket.dial(timeoutMs);
  // An agent would connect by itself.
  return { agent: undefined, host: 'localhost', createConnection: () => connection };
}

function unavailable(question: HttpQuestion, error: unknown): MeshError {
  return asMeshError(error, 'STATE_UNAVAILABLE', `no answer from ${socketName(question)}`);
}

function socketName({ socket }: HttpQuestion): string {
  if (typeof socket === 'string') return socket;
  return 'dial' in socket ? socket.name : `${socket.host}:${socket.port}`;
}
