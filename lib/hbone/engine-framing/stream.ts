import type { ByteAccount } from '../../net/held-bytes.ts';
import type { FieldList } from './hpack-decoder.ts';
import {
  GATHER_BYTES,
  RELEASE_SHARE,
  SEND_HIGH_WATER_BYTES,
  SEND_LOW_WATER_BYTES,
  SMALL_PIECE_BYTES,
} from './limits.ts';
import type { Outgoing, Output } from './output.ts';
import type { ReceiveWindows } from './receive-windows.ts';
import type { StreamOver } from './resets.ts';
import type { SessionStream } from './wire.ts';

/** Receives the bytes and the end of a stream. No call comes after `onClosed`. */
export interface StreamSink {
  /**
   * Takes the next bytes, which may be a small part of a larger buffer; false stops further calls until {@link FramedStream.resume}.
   */
  onData(piece: Buffer): boolean;
  /** The peer has sent all it had. */
  onEnded(): void;
  /** END_STREAM has been sent. */
  onEndSent(): void;
  /** There is room again after {@link FramedStream.write} returned false. */
  onRoom(): void;
  /**
   * Both directions are over. Either both sides have ended and the last byte was taken, or the stream was `broken` off and waiting bytes
   * were dropped, which must not look like a clean end. `error` is set if that is a failure.
   */
  onClosed(error: Error | null, broken: boolean): void;
}

/** The part of the connection that a stream needs. */
export interface StreamHost {
  readonly output: Output;
  readonly windows: ReceiveWindows;
  /** The account of bytes that wait to be sent. */
  readonly bytes: ByteAccount;
  /** Gives window back to the peer. */
  release(stream: FramedStream, bytes: number): void;
  /** Sends RST_STREAM and forgets the stream. */
  resetStream(stream: FramedStream, code: number): void;
  /** Both sides have ended; forgets the stream. */
  streamDone(stream: FramedStream): void;
}

/** One stream: bytes that wait to be sent, bytes that wait to be read, and the windows of both (RFC 9113 §5). */
export class FramedStream implements Outgoing, SessionStream {
  readonly id: number;
  sendWindow: number;
  /** Bytes that the peer may still send. */
  receiveWindow: number;
  inRow = false;
  /** Whether `end` was called and END_STREAM still waits. */
  ending = false;
  waiting = 0;
  /** Whether END_STREAM has been sent. */
  localEnded = false;
  /** Whether the peer's END_STREAM has come. */
  remoteEnded = false;
  /** Whether sending and receiving have stopped. */
  over = false;
  /** Announced bytes (content-length) still to come, null when the peer announced none. */
  contentLeft: number | null = null;
  /** The code of the peer's RST_STREAM, null when none has come. */
  resetCode: number | null = null;
  /** Takes header lists while an answer is awaited. Without it they are trailers. */
  onHead: ((list: FieldList) => void) | null = null;
  #onOver: (() => void) | null = null;
  readonly #host: StreamHost;
  #windowSize: number;
  #sink: StreamSink | null = null;
  /** Pieces that wait to be sent. The first is sent up to `#taken`. */
  #outbox: Buffer[] = [];
  #taken = 0;
  #full = false;
  /** Pieces that wait for the sink. */
  #inbox: Buffer[] = [];
  #inboxBytes = 0;
  /** The buffer of small pieces. Its part up to `#gathered` is the last piece of the inbox. */
  #gather: Buffer | null = null;
  #gathered = 0;
  #stalled = false;
  #delivering = false;
  #endDelivered = false;
  #broken = false;
  #error: Error | null = null;
  /** Bytes read whose window is not given back to the peer yet. */
  #unreleased = 0;

  constructor(
    id: number,
    host: StreamHost,
    windows: { readonly send: number; readonly receive: number },
  ) {
    this.id = id;
    this.#host = host;
    this.sendWindow = windows.send;
    this.receiveWindow = windows.receive;
    this.#windowSize = windows.receive;
  }

  listen(onOver: (() => void) | null, onHead: ((list: FieldList) => void) | null): void {
    this.#onOver = onOver;
    this.onHead = onHead;
  }

  expect(bytes: number): void {
    this.contentLeft = bytes;
  }

  /** Starts to deliver to `sink`. Bytes received already follow at once. */
  attach(sink: StreamSink): void {
    this.#sink = sink;
    this.#deliver();
  }

  /** Queues bytes to send; false when enough wait already. The bytes must not change until they are sent. */
  write(piece: Buffer): boolean {
    if (this.over || this.ending) return true;
    if (piece.length === 0) return !this.#full;
    this.#outbox.push(piece);
    this.waiting += piece.length;
    this.#host.bytes.charge(piece.length);
    this.#host.output.ready(this);
    this.#full =
      this.waiting >= SEND_HIGH_WATER_BYTES || (this.waiting > 0 && this.#host.bytes.pressed);
    return !this.#full;
  }

  /** Sends END_STREAM after the waiting bytes. */
  end(): void {
    if (this.over || this.ending) return;
    this.ending = true;
    this.#host.output.ready(this);
  }

  /** Ends both directions and drops waiting bytes. */
  reset(code: number): void {
    this.#breakOff();
    if (this.over) this.#deliver();
    else this.#host.resetStream(this, code);
  }

  /** The sink takes more. */
  resume(): void {
    this.#stalled = false;
    this.#deliver();
  }

  take(into: Buffer, at: number, bytes: number): void {
    let left = bytes;
    let to = at;
    let pieces = 0;
    for (const piece of this.#outbox) {
      const part = Math.min(left, piece.length - this.#taken);
      piece.copy(into, to, this.#taken, this.#taken + part);
      to += part;
      left -= part;
      this.#taken += part;
      if (this.#taken < piece.length) break;
      this.#taken = 0;
      pieces += 1;
      if (left === 0) break;
    }
    if (pieces === this.#outbox.length) this.#outbox = [];
    else this.#outbox.splice(0, pieces);
    this.waiting -= bytes;
    this.sendWindow -= bytes;
    this.#host.bytes.charge(-bytes);
    if (this.#full && this.waiting <= (this.#host.bytes.pressed ? 0 : SEND_LOW_WATER_BYTES)) {
      this.#full = false;
      this.#sink?.onRoom();
    }
  }

  endTaken(): void {
    this.ending = false;
    this.localEnded = true;
    this.#sink?.onEndSent();
    if (this.remoteEnded && !this.over) this.#host.streamDone(this);
  }

  /** Takes a received piece. The caller has done the flow control. */
  receive(piece: Buffer): void {
    if (this.#sink === null || this.#stalled || this.#delivering || this.#inbox.length > 0) {
      this.#keep(piece);
    } else {
      this.#pass(this.#sink, piece);
    }
  }

  /** The peer's END_STREAM has come. */
  remoteEnd(): void {
    this.remoteEnded = true;
    if (this.localEnded && !this.over) this.#host.streamDone(this);
    this.#deliver();
  }

  /** Ends the stream. Bytes received before are still delivered, unless it is broken off. */
  finish({ error, broken }: StreamOver): void {
    if (this.over) return;
    this.over = true;
    this.#error = error;
    if (broken) this.#breakOff();
    this.#outbox = [];
    this.#host.bytes.charge(-this.waiting);
    this.waiting = 0;
    this.ending = false;
    this.#onOver?.();
    this.#onOver = null;
    this.#deliver();
  }

  /** Changes the size of the window, and the bytes that the peer may send, perhaps below 0. */
  resizeWindow(size: number): void {
    this.receiveWindow += size - this.#windowSize;
    this.#windowSize = size;
    // The peer may now wait for window that was too little to give back before.
    this.#consumed(0);
  }

  /** Counts padding as read. */
  discard(bytes: number): void {
    this.#consumed(bytes);
  }

  #pass(sink: StreamSink, piece: Buffer): void {
    this.#consumed(piece.length);
    if (!sink.onData(piece)) this.#stalled = true;
  }

  #deliver(): void {
    const sink = this.#sink;
    if (sink === null || this.#delivering) return;
    this.#delivering = true;
    while (!this.#stalled && this.#inbox.length > 0) {
      const pieces = this.#inbox;
      this.#inbox = [];
      this.#gather = null;
      for (let index = 0; index < pieces.length; index += 1) {
        if (this.#broken) break;
        if (this.#stalled) {
          this.#inbox = pieces.slice(index);
          break;
        }
        const piece = pieces[index];
        if (piece === undefined) break;
        this.#inboxBytes -= piece.length;
        this.#host.windows.hold(-piece.length);
        this.#pass(sink, piece);
      }
    }
    this.#delivering = false;
    if (this.#inbox.length > 0) return;
    if (this.remoteEnded && !this.#endDelivered && !this.#broken) {
      this.#endDelivered = true;
      sink.onEnded();
    }
    if (this.over && this.#sink !== null) {
      this.#sink = null;
      sink.onClosed(this.#error, this.#broken);
    }
  }

  #keep(piece: Buffer): void {
    this.#inboxBytes += piece.length;
    this.#host.windows.hold(piece.length);
    let gather = this.#gather;
    if (piece.length >= SMALL_PIECE_BYTES || this.#inbox.length === 0) {
      this.#gather = null;
      this.#inbox.push(Buffer.from(piece));
      return;
    }
    if (gather === null || gather.length - this.#gathered < piece.length) {
      gather = Buffer.allocUnsafeSlow(GATHER_BYTES);
      this.#gather = gather;
      this.#gathered = 0;
      this.#inbox.push(gather);
    }
    piece.copy(gather, this.#gathered);
    this.#gathered += piece.length;
    this.#inbox[this.#inbox.length - 1] = gather.subarray(0, this.#gathered);
  }

  /** Nobody gets what has come and waits. */
  #breakOff(): void {
    this.#broken = true;
    if (this.#inboxBytes === 0) return;
    this.#host.windows.hold(-this.#inboxBytes);
    this.#inboxBytes = 0;
    this.#inbox = [];
    this.#gather = null;
  }

  #consumed(bytes: number): void {
    if (this.over || this.remoteEnded) return;
    this.#unreleased += bytes;
    if (this.#unreleased === 0 || this.#unreleased < this.#windowSize / RELEASE_SHARE) return;
    this.receiveWindow += this.#unreleased;
    this.#host.release(this, this.#unreleased);
    this.#unreleased = 0;
  }
}
