import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { socketPair } from '../../linux/carry.ts';
import { closeFd } from '../../linux/netns.ts';
import { adoptSocket } from '../../net/socket.ts';
import type { StreamOver } from '../engine-framing/resets.ts';
import type { CarriedStream, StreamWatcher } from './carried-stream.ts';

type Done = (error?: Error | null) => void;

/** A carried stream as a Node duplex: the thread joins the stream with a local socket, whose other end is read and written here. */
export class CarriedDuplex extends Duplex implements StreamWatcher {
  readonly #stream: CarriedStream;
  readonly #reset: () => void;
  readonly #inner: Socket;
  /** The callback of a write that waits for room. */
  #writing: Done | null = null;
  #innerEnded = false;
  /** The stream has ended without being broken off. */
  #clean = false;

  /** `reset` ends the stream when the duplex is destroyed before it. Throws NATIVE_SYSCALL when no descriptors are free. */
  constructor(stream: CarriedStream, reset: () => void) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#reset = reset;
    // Without a listener an error by the peer would end the process.
    this.on('error', noop);
    const [ours, theirs] = socketPair();
    this.#inner = adopt(ours, theirs);
    this.#inner.on('error', noop);
    this.#inner.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) this.#inner.pause();
    });
    this.#inner.on('drain', () => this.#room());
    this.#inner.once('close', () => this.#room());
    this.#inner.once('end', () => this.#onInnerEnd());
    stream.attach(theirs, null, this);
  }

  onClosed({ error, broken }: StreamOver): void {
    if (broken) {
      this.destroy(error ?? undefined);
      return;
    }
    this.#clean = true;
    // Bytes that the peer no longer wants are no failure of this side.
    this.#room();
    if (this.#innerEnded) this.#end();
    else this.#inner.resume();
  }

  override _read(): void {
    this.#inner.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#inner.destroyed || this.#inner.write(chunk)) done();
    else this.#writing = done;
  }

  override _final(done: Done): void {
    if (this.#inner.destroyed) done();
    else this.#inner.end(() => done());
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#writing = null;
    this.#inner.destroy();
    // When both sides have said all they had, the thread still sends what it has read here.
    const saidAll = this.readableEnded && this.writableFinished;
    if (!saidAll && !this.#stream.over) this.#reset();
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

function adopt(ours: number, theirs: number): Socket {
  try {
    return adoptSocket(ours);
  } catch (error) {
    closeFd(ours);
    closeFd(theirs);
    throw error;
  }
}

function noop(): void {}
