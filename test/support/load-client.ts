/**
 * Sends HTTP requests to servers with a short pause, over new connections and over one kept connection each. Prints a
 * JSON line of counts ten times a second, and one for every failure. Runs in a pod. Arguments: `host:port` of each server.
 */
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { splitHostPort } from './load-lines.ts';
import type { LoadCounts, LoadLine } from './load-lines.ts';

/** The tests' servers answer at once; the mesh may wait for a policy (5 s) or retry (10 s). */
const ANSWER_TIMEOUT_MS = 15_000;
const PAUSE_MS = 40;
const REPORT_MS = 100;

const counts: Record<string, { fresh: number; kept: number }> = {};

function print(line: LoadLine): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function request(target: string, connection: 'close' | 'keep-alive'): string {
  return `GET / HTTP/1.1\r\nHost: ${target}\r\nConnection: ${connection}\r\n\r\n`;
}

/** Reads one answer with a Content-Length. Rejects when the connection fails or ends before the answer is complete. */
async function answer(socket: Socket): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let text = '';
  const onData = (chunk: Buffer): void => {
    text += chunk.toString('latin1');
    if (complete(text)) resolve();
  };
  const onEnd = (): void => reject(new Error(`closed after ${text.length} bytes`));
  const onError = (error: Error): void => reject(error);
  const timer = setTimeout(() => reject(new Error('no answer in time')), ANSWER_TIMEOUT_MS);
  socket.on('data', onData).on('end', onEnd).on('close', onEnd).on('error', onError);
  try {
    await promise;
    if (!text.startsWith('HTTP/1.1 200')) throw new Error(text.split('\r\n')[0]);
  } finally {
    clearTimeout(timer);
    socket.off('data', onData).off('end', onEnd).off('close', onEnd).off('error', onError);
  }
}

function complete(text: string): boolean {
  const head = text.indexOf('\r\n\r\n');
  if (head === -1) return false;
  const length = /^content-length: (\d+)/im.exec(text.slice(0, head))?.[1];
  return length === undefined || text.length >= head + 4 + Number(length);
}

function open(target: string): Socket {
  const socket = connect({ ...splitHostPort(target), noDelay: true });
  // Nothing listens between answers; the next answer reports the end of the connection.
  socket.on('error', () => undefined);
  return socket;
}

async function askAnew(target: string, own: { fresh: number }): Promise<never> {
  for (;;) {
    const socket = open(target);
    try {
      socket.write(request(target, 'close'));
      await answer(socket);
      own.fresh += 1;
    } catch (error) {
      print({ failure: { target, kind: 'fresh', reason: errorText(error), at: Date.now() } });
    } finally {
      socket.destroy();
    }
    await wait(PAUSE_MS);
  }
}

/** Sends requests over the kept connection until it ends. It is not reopened. */
async function askAgain(target: string, own: { kept: number }): Promise<void> {
  const socket = open(target);
  try {
    for (;;) {
      if (socket.destroyed || socket.readableEnded) throw new Error('closed between answers');
      socket.write(request(target, 'keep-alive'));
      await answer(socket);
      own.kept += 1;
      await wait(PAUSE_MS);
    }
  } catch (error) {
    print({ failure: { target, kind: 'kept', reason: errorText(error), at: Date.now() } });
  } finally {
    socket.destroy();
  }
}

const targets = process.argv.slice(2);
for (const target of targets) {
  const own = { fresh: 0, kept: 0 };
  counts[target] = own;
  void askAnew(target, own);
  void askAgain(target, own);
}
setInterval(() => print({ counts: structuredClone(counts) satisfies LoadCounts }), REPORT_MS);
