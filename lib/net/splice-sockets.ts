import type { Socket } from 'node:net';
import { MeshError } from '../errors/mesh-error.ts';
import { closeFd } from '../linux/netns.ts';
import { duplicateFd, splicePump } from '../linux/splice-pump.ts';
import { bidiCopy } from './bidi-copy.ts';
import type { Copy } from './bidi-copy.ts';
import { socketFd } from './socket.ts';

/**
 * Joins two connected sockets that have not been read from, both half-open, until both directions have ended. They leave
 * JavaScript: their `close` comes soon and means nothing, the copy's `done` is their end. Where the kernel does not let
 * them go (out of descriptors, or bytes wait in JavaScript), they are copied here instead.
 */
export function spliceSockets(a: Socket, b: Socket): Copy {
  if (isClean(a) && isClean(b)) {
    const fds = duplicates(a, b);
    if (fds !== null) {
      try {
        const splice = splicePump(fds.a, fds.b);
        leave(a);
        leave(b);
        return splice;
      } catch (error) {
        closeFd(fds.a);
        closeFd(fds.b);
        assertSyscall(error);
      }
    }
  }
  return bidiCopy(
    { duplex: a, smallReads: false, abort: () => a.destroy() },
    { duplex: b, smallReads: false, abort: () => b.destroy() },
  );
}

/**
 * Takes a connected socket that has not been read from out of JavaScript: its connection lives on in the descriptor, which
 * belongs to the caller. Rejects nothing that waits to be written: such a socket, or one that is closed, throws
 * UPSTREAM_CONNECT; NATIVE_SYSCALL when no descriptor is to be had.
 */
export function detachSocket(socket: Socket): number {
  const fd = socketFd(socket);
  if (fd === null || !isClean(socket)) {
    throw new MeshError('UPSTREAM_CONNECT', 'the connection is gone or in use');
  }
  const duplicate = duplicateFd(fd);
  leave(socket);
  return duplicate;
}

/** Nothing waits in JavaScript in either direction. */
function isClean(socket: Socket): boolean {
  return (
    !socket.destroyed &&
    !socket.connecting &&
    socket.readableLength === 0 &&
    socket.writableLength === 0 &&
    !socket.writableEnded
  );
}

function duplicates(a: Socket, b: Socket): { readonly a: number; readonly b: number } | null {
  const own = { a: socketFd(a), b: socketFd(b) };
  if (own.a === null || own.b === null) return null;
  let first: number | null = null;
  try {
    first = duplicateFd(own.a);
    return { a: first, b: duplicateFd(own.b) };
  } catch (error) {
    if (first !== null) closeFd(first);
    assertSyscall(error);
    return null;
  }
}

/** Destroying closes this descriptor of the connection; as another one is open, the peer is not told. */
function leave(socket: Socket): void {
  socket.destroy();
}

/** What the kernel refuses has another way; anything else is a defect. */
function assertSyscall(error: unknown): void {
  if (!(error instanceof MeshError) || error.code !== 'NATIVE_SYSCALL') throw error;
}
