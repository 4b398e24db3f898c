/**
 * A thread that serves tunnels and is blocked at a word. It joins the first stream with a connection to an application, and
 * echoes the bytes of all others itself.
 */
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { parentPort, workerData } from 'node:worker_threads';
import type { CredentialSource } from '../../lib/hbone/credentials.ts';
import { carriedEngine } from '../../lib/hbone/carried/engine.ts';
import type { IncomingRequest } from '../../lib/hbone/engine.ts';
import { RawSocket } from '../../lib/net/raw-socket.ts';
import { echo, tunnelOptions } from './tunnel-kit.ts';
import { credentials } from './tunnel-pki.ts';

/** The task of the thread. */
export interface BlockedServer {
  readonly source: CredentialSource;
  readonly applicationPort: number;
  /** One number: the thread is blocked from a message on until this is 1. */
  readonly gate: Int32Array<SharedArrayBuffer>;
}

/** Said before the thread is blocked, and when it goes on. */
export const BLOCKED = 'blocked';
export const GOES_ON = 'goes on';

if (parentPort !== null) {
  const { source, applicationPort, gate } = workerData as BlockedServer;
  const port = parentPort;
  const far = connect({ port: applicationPort, host: '127.0.0.1', allowHalfOpen: true });
  await once(far.pause(), 'connect');
  let streams = 0;
  const options = {
    ...tunnelOptions(credentials(source)),
    onRequest: async (incoming: IncomingRequest): Promise<void> => {
      streams += 1;
      if (streams === 1) incoming.accept({})?.carry?.(new RawSocket(far), 'b');
      else await echo(incoming);
    },
    onRequestError: (error: unknown): void => {
      throw error;
    },
  };
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
    void carriedEngine.serve(socket, options);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  port.postMessage((server.address() as AddressInfo).port);
  port.on('message', () => {
    port.postMessage(BLOCKED);
    Atomics.wait(gate, 0, 0);
    port.postMessage(GOES_ON);
  });
}
