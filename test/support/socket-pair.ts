import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import type { ExecutionContext } from 'ava';

/** Two ends of one TCP connection. */
export interface SocketPair {
  /** Accepted as a listener of ours accepts: paused, half-open. */
  readonly near: Socket;
  /** The application's end, half-open. */
  readonly far: Socket;
}

/** A connection over loopback, gone with the test. */
export async function socketPair(t: ExecutionContext): Promise<SocketPair> {
  const listener = createServer({ allowHalfOpen: true, pauseOnConnect: true });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address() as AddressInfo;
  const far = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  const [near] = (await once(listener, 'connection')) as [Socket];
  listener.close();
  if (far.connecting) await once(far, 'connect');
  for (const socket of [near, far]) {
    socket.on('error', () => {});
    t.teardown(() => socket.destroy());
  }
  return { near, far };
}
