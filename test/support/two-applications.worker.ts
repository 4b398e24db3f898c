/**
 * A thread with both ends of connections: connects two or four times, then sends bytes both ways on the first two, and tells in shared
 * memory how that went. The third sends as many and the fourth never reads.
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';

/** The task of the thread. */
export interface TwoApplications {
  readonly port: number;
  readonly bytes: number;
  /** Whether there are a third and a fourth connection. */
  readonly withStalled: boolean;
  /** One number: 0 while bytes are on their way, then a result. */
  readonly result: Int32Array<SharedArrayBuffer>;
}

/** Results of the thread. */
export const ALL_CAME = 1;
export const SOME_DIFFER = 2;

function digest(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  await once(socket, 'connect');
  return socket;
}

async function read(socket: Socket): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
    hash.update(chunk as Buffer);
  }
  return hash.digest('hex');
}

if (parentPort !== null) {
  const { port, bytes, withStalled, result } = workerData as TwoApplications;
  const [up, down] = [randomBytes(bytes), randomBytes(bytes)];
  const first = await dial(port);
  const second = await dial(port);
  const third = withStalled ? await dial(port) : null;
  const fourth = withStalled ? await dial(port) : null;
  parentPort.postMessage('connected');
  await once(parentPort, 'message');
  // The end of the test resets them, before or after it ends this thread.
  for (const socket of [third, fourth]) socket?.on('error', () => {});
  fourth?.pause();
  third?.end(up);
  first.end(up);
  second.end(down);
  const came = await Promise.all([read(second), read(first)]);
  const isRight = came[0] === digest(up) && came[1] === digest(down);
  Atomics.store(result, 0, isRight ? ALL_CAME : SOME_DIFFER);
  Atomics.notify(result, 0);
}
