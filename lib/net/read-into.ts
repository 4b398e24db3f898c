/**
 * Reads of a socket into a buffer of ours. Node does this by the option `onread`, which exists for sockets that the program connects
 * itself, not for accepted ones and not for TLS on a given socket; the three fields it sets are the same in all of them.
 */
import { Socket } from 'node:net';

/** Where bytes go and who takes them. */
export interface Reads {
  /** The buffer of the first read. */
  readonly buffer: Buffer;
  /** Takes the bytes at the beginning of the buffer; false stops reading until `socket.resume()`. */
  readonly take: (bytes: number, buffer: Buffer) => boolean;
  /** The buffer of the next read, asked for after each; the same one goes on when left out. */
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
 * Has the socket read into a buffer from now on, instead of emitting `data`. False, and nothing done, where this Node does not
 * allow it or bytes wait in the socket already. Reading begins with `socket.resume()`.
 */
export function readInto(socket: Socket, reads: Reads): boolean {
  const { _handle: handle } = socket as unknown as { _handle: Handle | null };
  if (fields === null || handle?.useUserBuffer === undefined) return false;
  if (socket.readableLength > 0 || socket.readableEnded || socket.destroyed) return false;
  handle.useUserBuffer(reads.buffer);
  // One by one, as each socket has them already: an object made of them to assign costs ten times as much.
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
