import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import type { ExecutionContext } from 'ava';

/** Two ends of one TCP connection. */
export interface SocketPair {
  /** The accepted end, paused and half-open as our listeners accept. */
  readonly near: Socket;
  /** The application's end, half-open. */
  readonly far: Socket;
}

/** Makes a connection over loopback; the end of the test closes it. */
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
