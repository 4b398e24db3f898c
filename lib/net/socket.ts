/** TCP sockets of the data path: half-open, without delay, addresses in canonical form. */
import { Socket } from 'node:net';
import type { Server } from 'node:net';
import { present } from '../errors/assert.ts';
import { MeshError } from '../errors/mesh-error.ts';
import { resetOnClose } from '../linux/sockets.ts';
import type { AcceptedNames } from '../linux/sockets.ts';
import { canonicalIp, formatHostPort } from './address.ts';

/** One end of a TCP connection; the ip is canonical. */
export interface Endpoint {
  readonly ip: string;
  readonly port: number;
}

/** `ip:port`, `[v6]:port`. */
export function formatEndpoint(endpoint: Endpoint): string {
  return formatHostPort(endpoint.ip, endpoint.port);
}

/** The ends of an accepted connection. */
export interface AcceptedEnds {
  readonly remote: Endpoint;
  readonly local: Endpoint;
  /** The destination before redirection; null when it was not redirected or the caller did not ask. */
  readonly original: Endpoint | null;
}

/** The ends of an accepted connection by the kernel's names. */
export function namedEnds(names: AcceptedNames): AcceptedEnds {
  return {
    remote: endpoint(names[0], names[1]),
    local: endpoint(names[2], names[3]),
    original: names.length === 6 ? endpoint(names[4], names[5]) : null,
  };
}

/** The local end of a socket, null when it is closed already. */
export function localEndpoint(socket: Socket): Endpoint | null {
  const { localAddress, localPort } = socket;
  if (localAddress === undefined || localPort === undefined) return null;
  return { ip: canonicalIp(withoutZone(localAddress)), port: localPort };
}

/** The descriptor under a socket, null when it is closed. Valid until the socket closes; the socket owns it. */
export function socketFd(socket: Socket): number | null {
  // Node has no public access to it; the kernel's options need it.
  const { _handle: handle } = socket as unknown as { _handle: { readonly fd?: number } | null };
  const fd = handle?.fd;
  return fd === undefined || fd < 0 ? null : fd;
}

/**
 * Closes a connection now by a reset (RST), so that its peer does not take the end for a clean one; what waits to be sent is
 * dropped. `socket.resetAndDestroy()` cannot do that, and leaves the socket open, while a FIN is under way. Without effect on a closed socket.
 */
export function resetSocket(socket: Socket): void {
  const fd = socket.destroyed ? null : socketFd(socket);
  if (fd !== null) resetOnClose(fd);
  socket.destroy();
}

/**
 * Makes a socket that owns a connected TCP descriptor. It is half-open, and paused before its first byte. Throws NATIVE_SYSCALL for a
 * descriptor that Node does not take; the caller then still owns it.
 */
export function adoptSocket(fd: number): Socket {
  const options = {
    fd,
    allowHalfOpen: true,
    readable: true,
    writable: true,
    // Node's servers use this option for their own sockets. A later pause would miss bytes that have arrived already.
    pauseOnCreate: true,
  };
  try {
    return new Socket(options);
  } catch (error) {
    throw new MeshError('NATIVE_SYSCALL', `cannot use descriptor ${fd} as a socket`, {
      cause: error,
      detail: { call: 'uv_tcp_open' },
    });
  }
}

/** Makes a server listen on a descriptor, which it then owns. Sockets come paused and half-open. */
export function serveFd(
  server: Server,
  fd: number,
  onError: (error: Error) => void,
): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ fd }, () => {
      server.off('error', reject);
      server.on('error', onError);
      resolve();
    });
  });
}

/** The kernel's text of an IPv4 address is canonical already. */
function endpoint(ip: string, port: number): Endpoint {
  return { ip: ip.includes(':') ? canonicalIp(ip) : ip, port };
}

function withoutZone(address: string): string {
  return present(address.split('%', 1)[0], 'a split text has a first part');
}
