import type { Socket } from 'node:net';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import { resetOnClose } from '../linux/sockets.ts';
import { duplicateFd, splicePump } from '../linux/splice-pump.ts';
import { bidiCopy, socketEnd } from './bidi-copy.ts';
import type { Copy } from './bidi-copy.ts';
import type { ByteAccount } from './held-bytes.ts';
import { socketFd } from './socket.ts';

/** A connection outside of JavaScript: its descriptor, which the holder owns, and the bytes read before. */
export interface Detached {
  readonly fd: number;
  readonly read: Buffer | null;
}

/**
 * Joins two connected sockets, both half-open and paused, until both directions have ended. The sockets leave JavaScript: their
 * `close` comes early and means nothing; the copy's `done` marks the end. If they cannot leave (no descriptors are free, or bytes wait
 * in JavaScript to be written), they are copied here instead, and waiting bytes are charged to the account.
 */
export function spliceSockets(a: Socket, b: Socket, bytes?: ByteAccount): Copy {
  const ends = detachBoth(a, b);
  if (ends !== null) {
    try {
      return splicePump(ends.a, ends.b);
    } catch (error) {
      for (const { fd } of [ends.a, ends.b]) {
        resetOnClose(fd);
        closeFd(fd);
      }
      throw error;
    }
  }
  return bidiCopy(socketEnd(a), socketEnd(b), bytes);
}

/**
 * Takes a connected, paused socket out of JavaScript. Throws UPSTREAM_CONNECT for a socket that is closed or still has bytes to
 * write, and NATIVE_SYSCALL when no descriptor is free; the socket then stays unchanged.
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
    // The caller has another way if the kernel refuses; any other error is a defect.
    if (error instanceof MeshError && error.code === 'NATIVE_SYSCALL') return null;
    throw error;
  }
}

/** Whether the socket is open and no bytes wait in JavaScript to be written. */
function mayLeave(socket: Socket): boolean {
  return (
    !socket.destroyed && !socket.connecting && socket.writableLength === 0 && !socket.writableEnded
  );
}

/**
 * Takes the bytes read so far and destroys the socket. The peer does not notice, since the connection has another descriptor. All
 * happens in one turn, so that the loop reads nothing meanwhile.
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
