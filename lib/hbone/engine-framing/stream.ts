import type { FieldList } from './hpack-decoder.ts';
import {
  DIRECT_PAUSE_BYTES,
  GATHER_BYTES,
  RELEASE_SHARE,
  SEND_HIGH_WATER_BYTES,
  SEND_LOW_WATER_BYTES,
  SMALL_PIECE_BYTES,
} from './limits.ts';
import { readBuffer } from './output.ts';
import type { Outgoing } from './output.ts';
import type { Slab } from './record-buffer.ts';
import type { StreamOver } from './resets.ts';

/** Takes what a stream receives. Nothing is called after `onClosed`. */
export interface StreamSink {
  /**
   * The next bytes; false asks to wait for {@link FramedStream.resume}. They are good for this call only, unless held
   * ({@link FramedStream.hold}).
   */
  onData(piece: Buffer): boolean;
  /** The peer has sent all it had. */
  onEnded(): void;
  /** END_STREAM has been sent. */
  onEndSent(): void;
  /** There is room again after {@link FramedStream.write} said false. */
  onRoom(): void;
  /**
   * Both directions are over: by their ends, after the last byte was taken, or `broken` off, when what waited was dropped and nobody
   * may take the end for a clean one. The error where that is a failure.
   */
  onClosed(error: Error | null, broken: boolean): void;
}

/** What a stream needs of its connection. */
export interface StreamHost {
  /** It has something to send. */
  ready(stream: FramedStream): void;
  /** Sends what stands in the read buffer, if it can be done at once. */
  sendRead(stream: FramedStream, bytes: number): boolean;
  /** Calls {@link FramedStream.readTurn} when the source may be read. */
  awaitReadTurn(stream: FramedStream): void;
  /** As {@link FramedStream.hold}. */
  hold(): Slab;
  /** Gives window back to the peer. */
  release(stream: FramedStream, bytes: number): void;
  /** More or fewer received bytes wait for their reader. */
  held(bytes: number): void;
  /** Too much is held: no more than one read may wait. */
  readonly pressed: boolean;
  /** More or fewer received bytes wait elsewhere. */
  queued(bytes: number): void;
  /** More or fewer bytes wait to be sent. */
  charge(bytes: number): void;
  /** Sends RST_STREAM and forgets the stream. */
  resetStream(stream: FramedStream, code: number): void;
  /** Both sides have ended; forgets the stream. */
  streamDone(stream: FramedStream): void;
}

/** One stream: what waits to be sent, what waits to be read, and the windows of both (RFC 9113 §5). */
export class FramedStream implements Outgoing {
  readonly id: number;
  sendWindow: number;
  /** What the peer may still send. */
  receiveWindow: number;
  inRow = false;
  /** We have been told to end, END_STREAM may still wait. */
  ending = false;
  waiting = 0;
  /** END_STREAM has been sent. */
  localEnded = false;
  /** The peer's END_STREAM has come. */
  remoteEnded = false;
  /** Nothing is sent or received any more. */
  over = false;
  /** Bytes the peer has announced and not yet sent, null when it announced none. */
  contentLeft: number | null = null;
  /** The code of the peer's RST_STREAM, null when none has come. */
  resetCode: number | null = null;
  /** Takes header lists while an answer is awaited; else they are trailers. */
  onHead: ((list: FieldList) => void) | null = null;
  /** Told when the stream is over, before its sink. */
  onOver: (() => void) | null = null;
  readonly #host: StreamHost;
  #windowSize: number;
  #sink: StreamSink | null = null;
  /** Pieces that wait to be sent; the first up to `#taken` has gone. */
  #outbox: Buffer[] = [];
  #taken = 0;
  #full = false;
  #awaitsTurn = false;
  /** Pieces that wait for the sink. */
  #inbox: Buffer[] = [];
  #inboxBytes = 0;
  /** Where small pieces go: the last of the inbox is its part up to `#gathered`. */
  #gather: Buffer | null = null;
  #gathered = 0;
  #stalled = false;
  #delivering = false;
  #endDelivered = false;
  #broken = false;
  #error: Error | null = null;
  /** Read, and not yet given back to the peer. */
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

  /** Reads from now on; what has come already follows at once. */
  attach(sink: StreamSink): void {
    this.#sink = sink;
    this.#deliver();
  }

  /** Sends; false when enough waits already. The bytes must not change until they are sent. */
  write(piece: Buffer): boolean {
    if (this.over || this.ending) return true;
    if (piece.length === 0) return !this.#full;
    this.#outbox.push(piece);
    this.waiting += piece.length;
    this.#host.charge(piece.length);
    this.#host.ready(this);
    this.#full = this.waiting >= SEND_HIGH_WATER_BYTES || (this.waiting > 0 && this.#host.pressed);
    return !this.#full;
  }

  /** Sends the bytes at the beginning of {@link readBuffer}, like {@link write}. */
  writeRead(bytes: number): boolean {
    if (this.over || this.ending) return true;
    if (this.#host.sendRead(this, bytes)) this.sendWindow -= bytes;
    else this.write(copyOfRead(bytes));
    if (bytes >= DIRECT_PAUSE_BYTES && !this.#awaitsTurn) {
      // The next read would find the tunnel busy, and be copied.
      this.#awaitsTurn = true;
      if (this.waiting === 0) this.#host.awaitReadTurn(this);
    }
    return !this.#full && !this.#awaitsTurn;
  }

  readTurn(): boolean {
    this.#awaitsTurn = false;
    if (this.over) return false;
    this.#sink?.onRoom();
    return true;
  }

  /** The sink needs what it was given beyond the call, until it releases the slab. */
  hold(): Slab {
    return this.#host.hold();
  }

  /** Sends END_STREAM after what waits. */
  end(): void {
    if (this.over || this.ending) return;
    this.ending = true;
    this.#host.ready(this);
  }

  /** Ends both directions, dropping what waits. */
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
    this.#host.charge(-bytes);
    if (this.#full && this.waiting <= (this.#host.pressed ? 0 : SEND_LOW_WATER_BYTES)) {
      this.#full = false;
      if (!this.#awaitsTurn) this.#sink?.onRoom();
    }
    if (this.#awaitsTurn && this.waiting === 0) this.#host.awaitReadTurn(this);
  }

  endTaken(): void {
    this.ending = false;
    this.localEnded = true;
    this.#sink?.onEndSent();
    if (this.remoteEnded && !this.over) this.#host.streamDone(this);
  }

  /** A piece has come; flow control is settled already. */
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

  /** The stream is over. What came before is still delivered, unless it is broken off. */
  finish({ error, broken }: StreamOver): void {
    if (this.over) return;
    this.over = true;
    this.#error = error;
    if (broken) this.#breakOff();
    this.#outbox = [];
    this.#host.charge(-this.waiting);
    this.waiting = 0;
    this.ending = false;
    this.onOver?.();
    this.onOver = null;
    this.#deliver();
  }

  /** Too much is held on behalf of its pod: no more than it needs to go on. */
  get pressed(): boolean {
    return this.#host.pressed;
  }

  /** Whoever reads it holds more or fewer bytes of it. */
  charge(bytes: number): void {
    this.#host.queued(bytes);
  }

  /** The window is of another size from now on; what the peer may send changes with it, perhaps below nothing. */
  resizeWindow(size: number): void {
    this.receiveWindow += size - this.#windowSize;
    this.#windowSize = size;
    // What was too little to be worth a frame may be all that the peer waits for.
    this.#consumed(0);
  }

  /** Takes padding, which nobody reads. */
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
        this.#host.held(-piece.length);
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
    this.#host.held(piece.length);
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
    this.#host.held(-this.#inboxBytes);
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

function copyOfRead(bytes: number): Buffer {
  const copy = Buffer.allocUnsafe(bytes);
  readBuffer.copy(copy, 0, 0, bytes);
  return copy;
}
