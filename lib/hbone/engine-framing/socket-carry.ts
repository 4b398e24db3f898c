import type { Socket } from 'node:net';
import { GATHER_FROM_BYTES, HIGH_WATER_BYTES, isOrdinaryEnd } from '../../net/bidi-copy.ts';
import type { Copy, CopyCounts, CopyResult, CopySide } from '../../net/bidi-copy.ts';
import type { FramedStream, StreamSink } from './stream.ts';

/**
 * Bytes between a stream and a TCP socket without a Node stream between them: what the socket reads is queued for the tunnel,
 * what the tunnel reads is written to the socket. Ends as lib/net/bidi-copy.ts says.
 */
export class SocketCarry implements Copy, StreamSink {
  readonly counts: CopyCounts = { fromA: 0, fromB: 0 };
  readonly done: Promise<CopyResult>;
  readonly #stream: FramedStream;
  readonly #socket: Socket;
  readonly #socketIs: CopySide;
  readonly #reset: () => void;
  readonly #finished: (result: CopyResult) => void;
  #error: Error | null = null;
  #socketClosed = false;
  #streamClosed = false;
  #corked = false;

  /** `reset` ends the stream in both directions. */
  constructor(stream: FramedStream, socket: Socket, socketIs: CopySide, reset: () => void) {
    this.#stream = stream;
    this.#socket = socket;
    this.#socketIs = socketIs;
    this.#reset = reset;
    const { promise, resolve } = Promise.withResolvers<CopyResult>();
    this.done = promise;
    this.#finished = resolve;
    socket.on('error', this.#onSocketError);
    if (socket.closed) queueMicrotask(this.#onSocketClosed);
    else socket.once('close', this.#onSocketClosed);
    socket.on('data', this.#onSocketData);
    socket.on('drain', this.#onSocketDrain);
    if (socket.readableEnded) stream.end();
    else socket.once('end', this.#onSocketEnd);
    stream.attach(this);
    // A socket accepted with pauseOnConnect stays paused until it is told otherwise.
    if (!socket.readableEnded) socket.resume();
  }

  abort(): void {
    this.#socket.destroy();
    this.#reset();
  }

  onData(piece: Buffer): boolean {
    const socket = this.#socket;
    this.#count(this.#socketIs === 'a' ? 'b' : 'a', piece.length);
    if (!socket.writable) return true;
    // A message goes at once; parts of a bulk transfer are gathered over one turn, since each write is a system call.
    if (!this.#corked && piece.length >= GATHER_FROM_BYTES) {
      this.#corked = true;
      socket.cork();
      setImmediate(this.#uncork);
    }
    return socket.write(piece) || socket.writableLength < HIGH_WATER_BYTES;
  }

  onEnded(): void {
    if (this.#socket.writable) this.#socket.end();
  }

  onEndSent(): void {
    // Nobody reads what the peer still says.
    if (this.#socketClosed && !this.#stream.remoteEnded) this.#reset();
  }

  onRoom(): void {
    if (!this.#socketClosed) this.#socket.resume();
  }

  onClosed(error: Error | null): void {
    this.#streamClosed = true;
    this.#note(error);
    if (this.#socketClosed) {
      this.#finished({ error: this.#error });
      return;
    }
    const socket = this.#socket;
    // What was handed to the socket reaches its peer first. One that has said all it had is not cut: it closes by itself.
    const cut = (): void => {
      if (!socket.readableEnded) socket.destroy();
    };
    if (socket.writableFinished || socket.destroyed) cut();
    else socket.end(cut);
  }

  readonly #onSocketData = (chunk: Buffer): void => {
    this.#count(this.#socketIs, chunk.length);
    if (!this.#stream.write(chunk)) this.#socket.pause();
  };

  readonly #onSocketEnd = (): void => {
    this.#stream.end();
  };

  readonly #onSocketDrain = (): void => {
    this.#stream.resume();
  };

  readonly #onSocketError = (error: Error): void => {
    this.#note(error);
  };

  readonly #onSocketClosed = (): void => {
    this.#socketClosed = true;
    if (this.#streamClosed) {
      this.#finished({ error: this.#error });
      return;
    }
    // What was read before reaches the peer; what the peer still says has no reader.
    if (this.#stream.localEnded) this.onEndSent();
    else this.#stream.end();
    this.#stream.resume();
  };

  readonly #uncork = (): void => {
    this.#corked = false;
    this.#socket.uncork();
  };

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
