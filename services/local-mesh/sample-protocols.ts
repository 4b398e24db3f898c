/** The protocols of the sample servers: HTTP, and one in which the server speaks first. */
import { createHash } from 'node:crypto';
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http';
import { createServer } from 'node:net';
import type { Server, Socket } from 'node:net';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createServer as createHttpServer } from '../../lib/http/node-http.ts';

/** Largest `/bytes/N`, 1 TiB; the body is made while it is sent. */
const BYTES_LIMIT = 1024 ** 4;
const CHUNK_BYTES = 64 * 1024;
/** A line of the server-first protocol longer than this ends the connection. */
const LINE_LIMIT_CHARACTERS = 8_192;

/** The bytes that `/bytes/N` repeats: a fixed pseudo-random pattern, so that mix-ups change the checksum. */
const PATTERN = makePattern();

function makePattern(): Buffer {
  const blocks: Buffer[] = [];
  for (let index = 0; index < CHUNK_BYTES / 32; index += 1) {
    blocks.push(createHash('sha256').update(`weft ${index}`).digest());
  }
  return Buffer.concat(blocks);
}

/** An HTTP server: `/` answers name and peer, `/bytes/N` N bytes, `POST /sink` count and SHA-256 of the body. */
export function httpServer(name: string): HttpServer {
  const server = createHttpServer({ keepAliveTimeout: 60_000 });
  server.on('request', (request, response) => {
    handle(name, request, response).catch(() => {
      // The client closed the connection; nobody is left to tell.
      response.destroy();
    });
  });
  return server;
}

async function handle(
  name: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = new URL(request.url ?? '/', 'http://sample').pathname;
  const amount = /^\/bytes\/(\d{1,13})$/.exec(path);
  if (amount !== null) {
    await sendBytes(Number(amount[1]), request, response);
    return;
  }
  if (path === '/sink') {
    await sink(request, response);
    return;
  }
  if (path !== '/') {
    send(response, 404, { name, error: `no such path: ${path}` });
    return;
  }
  request.resume();
  send(response, 200, {
    name,
    peer: plainAddress(request.socket.remoteAddress),
    peerPort: request.socket.remotePort,
    local: plainAddress(request.socket.localAddress),
  });
}

async function sendBytes(
  amount: number,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (amount > BYTES_LIMIT) {
    send(response, 400, { error: `at most ${BYTES_LIMIT} bytes` });
    return;
  }
  request.resume();
  response.writeHead(200, {
    'content-type': 'application/octet-stream',
    'content-length': amount,
  });
  await pipeline(Readable.from(patternBytes(amount), { objectMode: false }), response);
}

/** `amount` bytes of the pattern, in chunks. */
export function* patternBytes(amount: number): Generator<Buffer> {
  for (let left = amount; left > 0; left -= CHUNK_BYTES) {
    yield left >= CHUNK_BYTES ? PATTERN : PATTERN.subarray(0, left);
  }
}

async function sink(request: IncomingMessage, response: ServerResponse): Promise<void> {
  if (request.method !== 'POST' && request.method !== 'PUT') {
    send(response, 405, { error: 'use POST' });
    return;
  }
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of request) {
    hash.update(chunk as Buffer);
    bytes += (chunk as Buffer).length;
  }
  send(response, 200, { bytes, sha256: hash.digest('hex') });
}

function send(response: ServerResponse, status: number, body: unknown): void {
  const text = `${JSON.stringify(body)}\n`;
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

/**
 * A server that greets before the client sends anything, then answers each line: `PING` → `PONG`, `QUIT` ends,
 * anything else → `OK <line>`. After a half-close it answers everything received before it closes.
 */
export function greetingServer(name: string): Server {
  return createServer({ allowHalfOpen: true }, (socket) => {
    // The peer reset the connection, which ends it.
    socket.on('error', () => socket.destroy());
    serveLines(name, socket).catch(() => socket.destroy());
  });
}

async function serveLines(name: string, socket: Socket): Promise<void> {
  socket.setEncoding('latin1');
  await write(socket, `+READY ${name} ${plainAddress(socket.remoteAddress)}\n`);
  let rest = '';
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    rest += String(chunk);
    const lines = rest.split('\n');
    rest = lines.pop() ?? '';
    if (rest.length > LINE_LIMIT_CHARACTERS) {
      socket.end('-ERR line too long\n');
      return;
    }
    for (const line of lines) {
      const words = line.trimEnd();
      if (words === 'QUIT') {
        socket.end('+BYE\n');
        return;
      }
      await write(socket, words === 'PING' ? '+PONG\n' : `+OK ${words}\n`);
    }
  }
  socket.end();
}

function write(socket: Socket, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    socket.write(text, 'latin1', (error) => {
      if (error === undefined || error === null) resolve();
      else reject(error);
    });
  });
}

/** The peer's address; an IPv4 peer of a dual-stack socket in IPv4 form. */
function plainAddress(address: string | undefined): string {
  return (address ?? '').replace(/^::ffff:(?=\d+\.)/, '');
}
