import type { TLSSocket } from 'node:tls';
import { readInto } from '../../net/read-into.ts';
import { BULK_READ_BYTES, RECORD_BYTES, SLAB_BYTES } from './limits.ts';

/** Memory that records are decrypted to. */
export interface Slab {
  readonly bytes: Buffer;
  /** Number of pieces of it still in use. */
  users: number;
  /** Whether its tunnel has moved on to another slab. The last user then gives it back. */
  left: boolean;
}

/** Large slabs that no tunnel uses. */
const spare: Slab[] = [];
const MAX_SPARE = 4;

/**
 * The buffer that a tunnel's TLS records are decrypted into. A record lies behind the one before it while that is still in use, so that
 * the content of a frame is in one piece; else it takes its place. A reader must hold a piece to keep it.
 */
export class RecordBuffer {
  /** The only slab of an idle tunnel. */
  #small = newSlab(RECORD_BYTES);
  #slab = this.#small;
  #at = 0;
  #current = this.#slab.bytes;

  /** The place of the next record. */
  get current(): Buffer {
    return this.#current;
  }

  /** Keeps the bytes received so far until the returned slab is {@link release}d. A slab never released is not used again. */
  hold(): Slab {
    this.#slab.users += 1;
    return this.#slab;
  }

  /** The place of the record after one of `bytes`. */
  next(bytes: number): Buffer {
    if (this.#slab.users > 0) this.#advance(bytes);
    else this.#rewind(bytes >= BULK_READ_BYTES);
    return this.#current;
  }

  #advance(bytes: number): void {
    this.#at += bytes;
    const { bytes: memory } = this.#slab;
    if (memory.length - this.#at >= RECORD_BYTES) {
      this.#current = memory.subarray(this.#at);
      return;
    }
    // The slab left behind belongs to its remaining users.
    this.#slab.left = true;
    if (this.#slab === this.#small) this.#small = newSlab(RECORD_BYTES);
    this.#begin(largeSlab());
  }

  #rewind(isBulk: boolean): void {
    if (isBulk && this.#slab === this.#small) {
      this.#begin(largeSlab());
    } else if (!isBulk && this.#slab !== this.#small) {
      giveBack(this.#slab);
      this.#begin(this.#small);
    } else if (this.#at > 0) {
      this.#begin(this.#slab);
    }
  }

  #begin(slab: Slab): void {
    this.#slab = slab;
    this.#at = 0;
    this.#current = slab.bytes;
  }
}

/** Ends a hold. */
export function release(slab: Slab): void {
  slab.users -= 1;
  if (slab.users === 0 && slab.left && slab.bytes.length === SLAB_BYTES) giveBack(slab);
}

function newSlab(bytes: number): Slab {
  return { bytes: Buffer.allocUnsafeSlow(bytes), users: 0, left: false };
}

function largeSlab(): Slab {
  return spare.pop() ?? newSlab(SLAB_BYTES);
}

function giveBack(slab: Slab): void {
  slab.left = false;
  if (spare.length < MAX_SPARE) spare.push(slab);
}

/** Passes received bytes to `receive`. They go through the buffer if this Node supports it. */
export function readRecords(
  socket: TLSSocket,
  records: RecordBuffer,
  receive: (chunk: Buffer) => void,
): void {
  // Bytes that came with the handshake.
  const early: unknown = socket.read();
  if (early instanceof Buffer) receive(early);
  let last = 0;
  const isDirect = readInto(socket, {
    buffer: records.current,
    take: (bytes, buffer) => {
      last = bytes;
      receive(bytes === buffer.length ? buffer : buffer.subarray(0, bytes));
      return true;
    },
    next: () => records.next(last),
  });
  if (!isDirect) socket.on('data', receive);
  socket.resume();
}
