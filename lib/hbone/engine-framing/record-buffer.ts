import type { TLSSocket } from 'node:tls';
import { readInto } from '../../net/read-into.ts';
import { BULK_READ_BYTES, RECORD_BYTES, SLAB_BYTES } from './limits.ts';

/** Large buffers that no tunnel uses at the moment. */
const spare: Buffer[] = [];
const MAX_SPARE = 4;

/**
 * Where a tunnel's TLS records are decrypted to. A record lies behind the one before it as long as somebody still needs that,
 * so that the content of one frame is in one piece; else it takes its place. Nobody may keep a piece without a hold.
 */
export class RecordBuffer {
  /** What an idle tunnel has. */
  #small: Buffer = Buffer.allocUnsafeSlow(RECORD_BYTES);
  #base: Buffer = this.#small;
  #at = 0;
  #current: Buffer = this.#small;
  #holds = 0;
  /** A write of a piece has not finished: the whole buffer is left to it. */
  #pinned = false;
  /** Counts buffers, so that a hold on an earlier one means nothing for this. */
  #epoch = 0;

  /** Where the next record goes. */
  get current(): Buffer {
    return this.#current;
  }

  /** What has come is needed beyond the call that brought it; the answer is for {@link release}. */
  hold(): number {
    this.#holds += 1;
    return this.#epoch;
  }

  /** It is needed no more, or `pinned`: for an unknown time. */
  release(epoch: number, pinned: boolean): void {
    if (epoch !== this.#epoch) return;
    this.#holds -= 1;
    this.#pinned ||= pinned;
  }

  /** The place of the record after one of `bytes`. */
  next(bytes: number): Buffer {
    if (this.#holds > 0 || this.#pinned) this.#advance(bytes);
    else this.#rewind(bytes >= BULK_READ_BYTES);
    return this.#current;
  }

  #advance(bytes: number): void {
    this.#at += bytes;
    if (this.#base.length - this.#at < RECORD_BYTES) {
      this.#epoch += 1;
      this.#holds = 0;
      this.#pinned = false;
      this.#at = 0;
      // What is left behind belongs to those who still need it.
      if (this.#base === this.#small) this.#small = Buffer.allocUnsafeSlow(RECORD_BYTES);
      this.#base = spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES);
    }
    this.#current = this.#at === 0 ? this.#base : this.#base.subarray(this.#at);
  }

  #rewind(isBulk: boolean): void {
    this.#at = 0;
    if (isBulk && this.#base === this.#small) {
      this.#base = spare.pop() ?? Buffer.allocUnsafeSlow(SLAB_BYTES);
      this.#epoch += 1;
    } else if (!isBulk && this.#base !== this.#small) {
      if (spare.length < MAX_SPARE) spare.push(this.#base);
      this.#base = this.#small;
      this.#epoch += 1;
    }
    this.#current = this.#base;
  }
}

/** Hands what the socket receives to `receive`, by way of the buffer where this Node can. */
export function readRecords(
  socket: TLSSocket,
  records: RecordBuffer,
  receive: (chunk: Buffer) => void,
): void {
  // What came with the handshake.
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
