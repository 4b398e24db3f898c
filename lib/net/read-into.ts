/**
 * Reads a socket into a given buffer. Node offers this as the option `onread`, but only for sockets that the program itself connects:
 * neither for accepted sockets nor for TLS on a given socket. The three fields that the option sets are the same in all of them.
 */
import { Socket } from 'node:net';

/** The buffer of the reads, and the function that takes them. */
export interface Reads {
  /** The buffer of the first read. */
  readonly buffer: Buffer;
  /** Takes the bytes at the start of the buffer; false stops reading until `socket.resume()`. */
  readonly take: (bytes: number, buffer: Buffer) => boolean;
  /** Returns the buffer of the next read, asked for after each read. Without it the same buffer stays in use. */
  readonly next?: () => Buffer;
}

interface Handle {
  useUserBuffer?(buffer: Buffer): void;
}

interface Fields {
  readonly buffer: symbol;
  readonly callback: symbol;
  readonly generator: symbol;
}

const fields = findFields();

/**
 * Makes the socket read into a buffer instead of emitting `data`. Returns false and does nothing if this Node does not allow it or
 * bytes already wait in the socket. Reading begins with `socket.resume()`.
 */
export function readInto(socket: Socket, reads: Reads): boolean {
  const { _handle: handle } = socket as unknown as { _handle: Handle | null };
  if (fields === null || handle?.useUserBuffer === undefined) return false;
  if (socket.readableLength > 0 || socket.readableEnded || socket.destroyed) return false;
  handle.useUserBuffer(reads.buffer);
  // Each socket has the fields already. Setting them one by one costs a tenth of assigning an object.
  const own = socket as unknown as Record<symbol, unknown>;
  own[fields.buffer] = reads.buffer;
  own[fields.callback] = reads.take;
  own[fields.generator] = reads.next ?? null;
  return true;
}

function findFields(): Fields | null {
  const probe = new Socket({ onread: { buffer: Buffer.alloc(1), callback: () => true } });
  const symbols = Object.getOwnPropertySymbols(probe);
  probe.destroy();
  const named = (name: string): symbol | undefined =>
    symbols.find((symbol) => symbol.description === name);
  const [buffer, callback, generator] = ['kBuffer', 'kBufferCb', 'kBufferGen'].map(named);
  if (buffer === undefined || callback === undefined || generator === undefined) return null;
  return { buffer, callback, generator };
}
