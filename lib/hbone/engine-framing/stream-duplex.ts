import { Duplex } from 'node:stream';
import type { FramedStream, StreamSink } from './stream.ts';

type Done = (error?: Error | null) => void;

/** A stream of a tunnel as a Node duplex. */
export class StreamDuplex extends Duplex implements StreamSink {
  readonly #stream: FramedStream;
  readonly #reset: () => void;
  /** Callbacks of a write and of an end that wait. */
  #writing: Done | null = null;
  #ending: Done | null = null;

  /** `reset` ends the stream when the duplex is destroyed before it. */
  constructor(stream: FramedStream, reset: () => void) {
    super({ allowHalfOpen: true });
    this.#stream = stream;
    this.#reset = reset;
    // Without a listener an error by the peer would end the process.
    this.on('error', noop);
    stream.attach(this);
  }

  onData(piece: Buffer): boolean {
    return this.destroyed || this.push(Buffer.from(piece));
  }

  onEnded(): void {
    if (!this.destroyed) this.push(null);
  }

  onEndSent(): void {
    const done = this.#ending;
    this.#ending = null;
    done?.();
  }

  onRoom(): void {
    const done = this.#writing;
    this.#writing = null;
    done?.();
  }

  onClosed(error: Error | null, broken: boolean): void {
    if (broken) {
      this.destroy(error ?? undefined);
      return;
    }
    // Bytes that the peer no longer wants are no failure of this side.
    this.onRoom();
    this.onEndSent();
    // A reader that pauses gets `end` when it goes on.
    if (this.readableLength > 0 || this.isPaused()) this.once('end', () => this.destroy());
    // A reader gets `end` first; without a reader nobody waits for it.
    else setImmediate(() => this.destroy());
  }

  override _read(): void {
    this.#stream.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#stream.write(chunk)) done();
    else this.#writing = done;
  }

  override _final(done: Done): void {
    if (this.#stream.over) {
      done();
      return;
    }
    this.#ending = done;
    this.#stream.end();
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#writing = null;
    this.#ending = null;
    if (!this.#stream.over) this.#reset();
    done(error);
  }
}

function noop(): void {}
