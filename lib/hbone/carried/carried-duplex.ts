import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { localPair } from '../../net/local-pair.ts';
import type { StreamOver } from '../session/resets.ts';
import type { CarriedStream, StreamWatcher } from './carried-stream.ts';

type Done = (error?: Error | null) => void;

/** A carried stream as a Node duplex: the thread joins the stream with a local socket, whose other end is read and written here. */
export class CarriedDuplex extends Duplex implements StreamWatcher {
  readonly #stream: CarriedStream;
  readonly #reset: () => void;
  readonly #inner: Socket;
  /** Callbacks of a write that waits for room, and of an end whose END_STREAM is not sent. */
  #writing: Done | null = null;
  #ending: Done | null = null;
  #innerEnded = false;
  /** The thread has closed its end of the socket. */
  #isClosed = false;
  /** The stream has ended without being broken off. */
  #clean = false;

  /** `reset` ends the stream when the duplex is destroyed before it. Throws NATIVE_SYSCALL when no descriptors are free. */
  constructor(stream: CarriedStream, reset: () => void) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#reset = reset;
    // Without a listener an error by the peer would end the process.
    this.on('error', noop);
    const { socket, fd } = localPair();
    this.#inner = socket;
    this.#inner.on('error', noop);
    this.#inner.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) this.#inner.pause();
    });
    this.#inner.on('drain', () => this.#room());
    this.#inner.once('close', () => this.#room());
    this.#inner.once('end', () => this.#onInnerEnd());
    stream.attach({ fd, first: null, read: null }, this);
  }

  onClosed({ error, broken }: StreamOver): void {
    this.#isClosed = true;
    if (this.destroyed) this.#inner.destroy();
    if (broken) {
      this.destroy(error ?? undefined);
      return;
    }
    this.#clean = true;
    // Bytes that the peer no longer wants are no failure of this side.
    this.#room();
    this.onEndSent();
    if (this.#innerEnded) this.#end();
    else this.#inner.resume();
  }

  onEndSent(): void {
    const done = this.#ending;
    this.#ending = null;
    done?.();
  }

  override _read(): void {
    this.#inner.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#inner.destroyed || this.#inner.write(chunk)) done();
    else this.#writing = done;
  }

  override _final(done: Done): void {
    if (this.#inner.destroyed || this.#stream.over) {
      done();
      return;
    }
    this.#ending = done;
    this.#inner.end();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#writing = null;
    this.#ending = null;
    if (!this.#stream.over) this.#reset();
    // The thread must hear of the reset first: a closed socket would be a clean end to it.
    if (this.#isClosed || this.#stream.delivers) this.#inner.destroy();
    else this.#inner.pause();
    done(error);
  }

  #onInnerEnd(): void {
    this.#innerEnded = true;
    // The thread closes the socket also of a stream that is broken off, and says so before it does.
    if (this.#clean || this.#stream.counts !== null) this.#end();
  }

  /** The peer has said all it had, and all of it has come. */
  #end(): void {
    if (this.destroyed) return;
    if (!this.readableEnded) this.push(null);
    if (!this.#clean) return;
    // A reader gets `end` first; without a reader nobody waits for it.
    if (this.readableLength > 0 || this.isPaused()) this.once('end', () => this.destroy());
    else setImmediate(() => this.destroy());
  }

  #room(): void {
    const done = this.#writing;
    this.#writing = null;
    done?.();
  }
}

function noop(): void {}
