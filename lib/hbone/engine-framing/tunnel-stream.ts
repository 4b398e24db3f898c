import type { Duplex } from 'node:stream';
import type { Abort } from '../../net/bidi-copy.ts';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { errorCode } from './frames.ts';
import { StreamDuplex } from './stream-duplex.ts';
import type { FramedStream } from './stream.ts';
import type { SessionStream } from './wire.ts';

/** A stream whose request was answered with 200. */
export abstract class SessionTunnelStream<Stream extends SessionStream> implements TunnelStream {
  readonly headers: PeerHeaders;
  protected readonly stream: Stream;
  readonly #isServer: boolean;
  #duplex: Duplex | null = null;

  constructor(stream: Stream, headers: PeerHeaders, isServer: boolean) {
    this.stream = stream;
    this.headers = headers;
    this.#isServer = isServer;
  }

  /** Made on first use, to save memory on thousands of idle streams. */
  get duplex(): Duplex {
    this.#duplex ??= this.makeDuplex();
    return this.#duplex;
  }

  reset(why: Abort = 'unread'): void {
    this.stream.reset(this.#code(why));
    this.#duplex?.destroy();
  }

  protected get isDuplex(): boolean {
    return this.#duplex !== null;
  }

  /** Makes the stream's duplex. It finishes when END_STREAM is sent. */
  protected abstract makeDuplex(): Duplex;

  #code(why: Abort): number {
    if (why === 'reset') return errorCode.connectError;
    // A client takes CANCEL for an end and keeps reading the bytes on their way.
    if (why === 'cut') return errorCode.internalError;
    // A server that has said all it had wants no more, which is no failure (docs/spec/hbone.md §8).
    const saidAll = this.#duplex?.writableFinished === true;
    return this.#isServer && saidAll ? errorCode.noError : errorCode.cancel;
  }
}

/** A stream whose bytes JavaScript moves. */
export class FramedTunnelStream extends SessionTunnelStream<FramedStream> {
  protected override makeDuplex(): Duplex {
    return new StreamDuplex(this.stream, () => this.reset());
  }
}
