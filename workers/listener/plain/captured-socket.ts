import type { Socket } from 'node:net';
import type { Endpoint } from '../../../lib/net/socket.ts';

/** A redirected connection, reading paused, and where it was going. */
export interface CapturedSocket {
  readonly socket: Socket;
  readonly source: Endpoint;
  readonly destination: Endpoint;
}
