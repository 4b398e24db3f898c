import type { Socket } from 'node:net';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import { duplicateFd, splicePump } from '../linux/splice-pump.ts';
import { bidiCopy, socketEnd } from './bidi-copy.ts';
import type { Copy } from './bidi-copy.ts';
import type { ByteAccount } from './held-bytes.ts';
import { socketFd } from './socket.ts';

/** A connection outside JavaScript: its descriptor, which belongs to the holder, and what was read of it before. */
export interface Detached {
  readonly fd: number;
  readonly read: Buffer | null;
}

/**
 * Joins two connected sockets, both half-open and paused, until both directions have ended. They leave JavaScript: their
 * `close` comes soon and means nothing, the copy's `done` is their end. Where the kernel does not let them go (out of
 * descriptors, or bytes wait in JavaScript to be written), they are copied here instead, and what waits goes to the account.
 */
export function spliceSockets(a: Socket, b: Socket, bytes?: ByteAccount): Copy {
  const ends = detachBoth(a, b);
  if (ends !== null) {
    try {
      return splicePump(ends.a, ends.b);
    } catch (error) {
      closeFd(ends.a.fd);
      closeFd(ends.b.fd);
      throw error;
    }
  }
  return bidiCopy(socketEnd(a), socketEnd(b), bytes);
}

/**
 * Takes a connected, paused socket out of JavaScript. Throws UPSTREAM_CONNECT for one that is closed or still has bytes to
 * write, NATIVE_SYSCALL when no descriptor is to be had; the socket stays as it is then.
 */
export function detachSocket(socket: Socket): Detached {
  const fd = socketFd(socket);
  if (fd === null || !mayLeave(socket)) {
    throw new MeshError('UPSTREAM_CONNECT', 'the connection is gone or in use');
  }
  return leave(socket, duplicateFd(fd));
}

function detachBoth(a: Socket, b: Socket): { readonly a: Detached; readonly b: Detached } | null {
  const own = { a: socketFd(a), b: socketFd(b) };
  if (own.a === null || own.b === null || !mayLeave(a) || !mayLeave(b)) return null;
  let first: number | null = null;
  try {
    first = duplicateFd(own.a);
    const second = duplicateFd(own.b);
    return { a: leave(a, first), b: leave(b, second) };
  } catch (error) {
    if (first !== null) closeFd(first);
    // What the kernel refuses has another way; anything else is a defect.
    if (error instanceof MeshError && error.code === 'NATIVE_SYSCALL') return null;
    throw error;
  }
}

/** Nothing waits in JavaScript to be written. */
function mayLeave(socket: Socket): boolean {
  return (
    !socket.destroyed && !socket.connecting && socket.writableLength === 0 && !socket.writableEnded
  );
}

/**
 * Takes what was read, and destroys the socket. That closes its own descriptor of the connection; as there is another one, the
 * peer is not told. All in one turn: the loop reads nothing meanwhile.
 */
function leave(socket: Socket, fd: number): Detached {
  const chunks: Buffer[] = [];
  while (socket.readableLength > 0) {
    const chunk = socket.read() as Buffer | null;
    if (chunk === null) break;
    chunks.push(chunk);
  }
  socket.destroy();
  return { fd, read: chunks.length === 0 ? null : Buffer.concat(chunks) };
}
