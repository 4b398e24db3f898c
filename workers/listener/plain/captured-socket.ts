import type { RawSocket } from '../../../lib/net/raw-socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';

/** An accepted connection and where it was going. */
export interface CapturedSocket {
  readonly socket: RawSocket;
  readonly source: Endpoint;
  /** Our end of it. */
  readonly local: Endpoint;
  /** The destination before redirection; our own end without one. */
  readonly destination: Endpoint;
}
