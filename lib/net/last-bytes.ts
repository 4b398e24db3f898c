import { readSync } from 'node:fs';
import type { Socket } from 'node:net';
import { socketFd } from './socket.ts';

/** Most bytes that one failed write reads: Linux's default largest receive buffer is 6 MiB. They wait in memory for a slow reader. */
export const MAX_LAST_BYTES = 8 * 1_048_576;

const READ_BYTES = 65_536;

/**
 * Passes on the bytes that a socket's peer sent before a write to the socket failed; call it in the callback of that write. Node destroys
 * the socket next, and would drop the early answer of a server that closes before it has read the whole request. Returns whether the
 * peer had ended its side and all its bytes were passed on.
 */
export function passLastBytes(
  socket: Socket,
  failure: NodeJS.ErrnoException,
  pass: (piece: Buffer) => void,
): boolean {
  // Emits `data` for what Node has read already.
  if (socket.readableLength > 0) socket.read();
  const fd = socketFd(socket);
  if (fd === null) return false;
  for (let read = 0; read < MAX_LAST_BYTES;) {
    const piece = Buffer.allocUnsafe(READ_BYTES);
    const bytes = readOnce(fd, piece);
    // The kernel reports an end after every reset. EPIPE says that a FIN came before it.
    if (bytes === 0) return failure.code === 'EPIPE';
    if (bytes === null) return false;
    pass(piece.subarray(0, bytes));
    read += bytes;
  }
  return false;
}

/** Reads what waits in the kernel; null when nothing does and the peer has not ended. */
function readOnce(fd: number, into: Buffer): number | null {
  try {
    return readSync(fd, into);
  } catch {
    // EAGAIN, or the failure of the connection, which the failed write reports.
    return null;
  }
}
