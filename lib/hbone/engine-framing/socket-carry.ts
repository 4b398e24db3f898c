import type { Socket } from 'node:net';
import { GATHER_FROM_BYTES, HIGH_WATER_BYTES, isOrdinaryEnd } from '../../net/bidi-copy.ts';
import type { Abort, Copy, CopyCounts, CopyResult, CopySide } from '../../net/bidi-copy.ts';
import { QueuedBytes } from '../../net/held-bytes.ts';
import { passLastBytes } from '../../net/last-bytes.ts';
import { readInto } from '../../net/read-into.ts';
import { resetSocket } from '../../net/socket.ts';
import { GATHERED_BYTES, PIN_FROM_BYTES } from './limits.ts';
import { readBuffer } from './output.ts';
import { release } from './record-buffer.ts';
import type { Slab } from './record-buffer.ts';
import type { FramedStream, StreamSink } from './stream.ts';

/**
 * Carries bytes between a stream and a TCP socket without a Node stream between them. It queues the socket's reads for the tunnel and
 * writes the tunnel's reads to the socket. It ends as lib/net/bidi-copy.ts says.
 */
export class SocketCarry implements Copy, StreamSink {
  readonly counts: CopyCounts = { fromA: 0, fromB: 0 };
  readonly done: Promise<CopyResult>;
  readonly #stream: FramedStream;
  readonly #socket: Socket;
  readonly #socketIs: CopySide;
  readonly #reset: (why: Abort) => void;
  readonly #finished: (result: CopyResult) => void;
  readonly #queued: QueuedBytes;
  #error: Error | null = null;
  /** Whether the application has ended its side, and all its bytes are queued. */
  #socketEnded = false;
  #socketClosed = false;
  #streamClosed = false;
  /** Bytes received in this turn and not written yet. */
  #gathered: Buffer | null = null;
  #slab: Slab | null = null;
  #scheduled = false;

  /** `reset` ends the stream in both directions. */
  constructor(
    stream: FramedStream,
    socket: Socket,
    socketIs: CopySide,
    reset: (why: Abort) => void,
  ) {
    this.#stream = stream;
    this.#socket = socket;
    this.#socketIs = socketIs;
    this.#reset = reset;
    this.#queued = new QueuedBytes(socket, stream);
    const { promise, resolve } = Promise.withResolvers<CopyResult>();
    this.done = promise;
    this.#finished = resolve;
    socket.on('error', this.#onSocketError);
    if (socket.closed) queueMicrotask(this.#onSocketClosed);
    else socket.once('close', this.#onSocketClosed);
    const reads = { buffer: readBuffer, take: this.#onSocketRead };
    if (!readInto(socket, reads)) socket.on('data', this.#onSocketData);
    socket.on('drain', this.#onSocketDrain);
    if (socket.readableEnded) this.#onSocketEnd();
    else socket.once('end', this.#onSocketEnd);
    stream.attach(this);
    // A socket accepted with pauseOnConnect stays paused until `resume`.
    if (!socket.readableEnded) socket.resume();
  }

  abort(): void {
    resetSocket(this.#socket);
    this.#reset('cut');
  }

  onData(piece: Buffer): boolean {
    const socket = this.#socket;
    this.#count(this.#socketIs === 'a' ? 'b' : 'a', piece.length);
    if (!socket.writable) return true;
    const gathered = this.#gathered;
    if (gathered !== null) {
      if (isBehind(gathered, piece)) {
        this.#gathered = joined(gathered, piece);
        if (this.#gathered.length >= GATHERED_BYTES) this.#writeGathered();
        return this.#takesMore;
      }
      this.#writeGathered();
    }
    // A message is written at once. Parts of a bulk transfer are gathered over one turn, since each write is a system call.
    if (piece.length < GATHER_FROM_BYTES) {
      this.#writeMessage(piece);
    } else {
      this.#slab = this.#stream.hold();
      this.#gathered = piece;
      if (!this.#scheduled) {
        this.#scheduled = true;
        setImmediate(this.#endTurn);
      }
    }
    return this.#takesMore;
  }

  onEnded(): void {
    this.#writeGathered();
    const socket = this.#socket;
    // If both sides have ended, closing the socket sends the FIN and saves a system call.
    if (socket.readableEnded && socket.writableLength === 0) socket.destroy();
    else if (socket.writable) socket.end();
  }

  onEndSent(): void {
    // Nobody reads what the peer still sends.
    if (this.#socketClosed && !this.#stream.remoteEnded) this.#reset('unread');
  }

  onRoom(): void {
    if (!this.#socketClosed) this.#socket.resume();
  }

  onClosed(error: Error | null, broken: boolean): void {
    this.#streamClosed = true;
    this.#note(error);
    // Bytes received before a reset are passed on as far as the kernel takes them now.
    this.#writeGathered();
    if (this.#socketClosed) {
      this.#finished({ error: this.#error });
      return;
    }
    const socket = this.#socket;
    if (broken) {
      resetSocket(socket);
      return;
    }
    // Bytes handed to the socket reach its peer first. If the peer has ended already, the socket closes by itself.
    const cut = (): void => {
      if (!socket.readableEnded) socket.destroy();
    };
    if (socket.writableFinished || socket.destroyed) cut();
    else socket.end(cut);
  }

  readonly #onSocketRead = (bytes: number): boolean => {
    this.#count(this.#socketIs, bytes);
    return this.#stream.writeRead(bytes);
  };

  readonly #onSocketData = (chunk: Buffer): void => {
    this.#count(this.#socketIs, chunk.length);
    if (!this.#stream.write(chunk)) this.#socket.pause();
  };

  readonly #onSocketEnd = (): void => {
    this.#socketEnded = true;
    this.#stream.end();
  };

  readonly #onSocketDrain = (): void => {
    this.#queued.update();
    this.#stream.resume();
  };

  readonly #onWritten = (error?: Error | null): void => {
    if (!error || this.#socketEnded) return;
    const pass = (piece: Buffer): void => {
      this.#count(this.#socketIs, piece.length);
      this.#stream.write(piece);
    };
    if (passLastBytes(this.#socket, error, pass)) this.#onSocketEnd();
  };

  readonly #onSocketError = (error: Error): void => {
    this.#note(error);
  };

  readonly #onSocketClosed = (): void => {
    this.#socketClosed = true;
    this.#queued.close();
    if (this.#streamClosed) {
      this.#finished({ error: this.#error });
      return;
    }
    if (!this.#socketEnded) {
      // The socket was reset or has failed, so the bytes read are not all.
      this.#reset('reset');
      return;
    }
    // Bytes read before reach the peer. Nobody reads what the peer still sends.
    if (this.#stream.localEnded) this.onEndSent();
    else this.#stream.end();
    this.#stream.resume();
  };

  readonly #endTurn = (): void => {
    this.#scheduled = false;
    this.#writeGathered();
  };

  get #takesMore(): boolean {
    const { writableLength, writableHighWaterMark } = this.#socket;
    // The socket emits no `drain` below its own mark.
    return writableLength < (this.#stream.pressed ? writableHighWaterMark : HIGH_WATER_BYTES);
  }

  #writeMessage(piece: Buffer): void {
    const socket = this.#socket;
    const isQueued = socket.writableLength > 0;
    socket.write(isQueued ? Buffer.from(piece) : piece, this.#onWritten);
    if (socket.writableLength === 0) return;
    // The slab is never released if the socket keeps the message, which is rare.
    if (!isQueued) this.#stream.hold();
    this.#queued.update();
  }

  /** Writes the gathered bytes, one piece in memory, by one call. */
  #writeGathered(): void {
    const bytes = this.#gathered;
    const slab = this.#slab;
    if (bytes === null || slab === null) return;
    this.#gathered = null;
    this.#slab = null;
    if (this.#socket.writable) this.#write(bytes, slab);
    else release(slab);
  }

  #write(bytes: Buffer, slab: Slab): void {
    const socket = this.#socket;
    // A few waiting bytes would keep a whole slab in use.
    if (socket.writableLength > 0 && bytes.length < PIN_FROM_BYTES) {
      socket.write(Buffer.from(bytes), this.#onWritten);
      release(slab);
    } else {
      let held = true;
      const done = (error?: Error | null): void => {
        if (held) release(slab);
        held = false;
        this.#onWritten(error);
      };
      socket.write(bytes, done);
      // The kernel has taken all bytes. Otherwise the socket reads them from the slab later.
      if (socket.writableLength === 0) done();
    }
    if (socket.writableLength > 0) this.#queued.update();
  }

  #count(side: CopySide, bytes: number): void {
    if (side === 'a') {
      this.counts.fromA += bytes;
    } else {
      this.counts.firstFromBMs ??= performance.now();
      this.counts.fromB += bytes;
    }
  }

  #note(error: Error | null): void {
    if (error !== null && !isOrdinaryEnd(error)) this.#error ??= error;
  }
}

function isBehind(before: Buffer, piece: Buffer): boolean {
  return before.buffer === piece.buffer && before.byteOffset + before.length === piece.byteOffset;
}

function joined(before: Buffer, piece: Buffer): Buffer {
  return Buffer.from(before.buffer, before.byteOffset, before.length + piece.length);
}
