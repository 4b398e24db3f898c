/**
 * A plain `node:http2` client. `http2-client.ts JSON` opens a CONNECT stream for each task, all at once over one
 * session, and prints one JSON line with the results.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { connect } from 'node:http2';
import type { ClientHttp2Session } from 'node:http2';

/** A stream to open, and the bytes to send on it. The stream ends when the peer has ended. */
export interface Task {
  readonly authority: string;
  readonly text: string;
  /** The number of zero bytes sent after the text. */
  readonly zeros?: number;
  readonly method?: string;
  /** Ends the stream as soon as everything is sent. */
  readonly halfClose?: boolean;
  /** Sends RST_STREAM with CANCEL as soon as the answer's first bytes arrive. */
  readonly reset?: boolean;
}

/** The program's options. */
export interface ClientOptions {
  readonly url: string;
  readonly cert: string | null;
  readonly key: string | null;
  readonly tasks: readonly Task[];
}

/** The result of a task. */
export interface TaskResult {
  readonly status: number | null;
  readonly bytes: number;
  readonly sha256: string;
  readonly start: string;
  readonly error: string | null;
}

const START_BYTES = 4_096;
const CHUNK_BYTES = 65_536;

async function carry(session: ClientHttp2Session, task: Task): Promise<TaskResult> {
  const method = task.method ?? 'CONNECT';
  const path = method === 'CONNECT' ? {} : { ':path': '/', ':scheme': 'https' };
  const stream = session.request(
    { ':method': method, ':authority': task.authority, ...path },
    { endStream: false },
  );
  const hash = createHash('sha256');
  let bytes = 0;
  let start = '';
  let status: number | null = null;
  let error: string | null = null;
  stream.on('response', (headers) => (status = headers[':status'] ?? null));
  stream.on('end', () => stream.end());
  stream.on('error', (reason: Error) => (error = reason.message));
  stream.on('data', (chunk: Buffer) => {
    hash.update(chunk);
    bytes += chunk.length;
    if (start.length < START_BYTES) start += chunk.toString('latin1').slice(0, START_BYTES);
    if (task.reset === true) stream.close(8);
  });
  stream.write(task.text);
  for (let left = task.zeros ?? 0; left > 0 && !stream.destroyed; left -= CHUNK_BYTES) {
    const more = stream.write(Buffer.alloc(Math.min(left, CHUNK_BYTES)));
    if (!more) await Promise.race([once(stream, 'drain'), once(stream, 'close')]);
  }
  if (task.halfClose === true && !stream.destroyed) stream.end();
  if (!stream.closed) await new Promise((resolve) => stream.once('close', resolve));
  return { status, bytes, sha256: hash.digest('hex'), start, error };
}

const { url, cert, key, tasks } = JSON.parse(process.argv[2] ?? '{}') as ClientOptions;
const session = connect(url, {
  ...(cert === null ? {} : { cert: readFileSync(cert) }),
  ...(key === null ? {} : { key: readFileSync(key) }),
  // The listener's names are SPIFFE identities; the program prints its certificate for the test to check.
  rejectUnauthorized: false,
});
let broken: string | null = null;
session.on('error', (error: Error) => (broken = error.message));
const results = await Promise.all(tasks.map((task) => carry(session, task)));
process.stdout.write(`${JSON.stringify({ broken, results })}\n`);
session.destroy();
