import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Abort, Copy, CopySide } from '../../net/bidi-copy.ts';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { errorCode } from './frames.ts';
import { SocketCarry } from './socket-carry.ts';
import { StreamDuplex } from './stream-duplex.ts';
import type { FramedStream } from './stream.ts';

/** A stream whose request was answered with 200. */
export class FramedTunnelStream implements TunnelStream {
  readonly headers: PeerHeaders;
  readonly #stream: FramedStream;
  readonly #isServer: boolean;
  /** Made on first use, to save memory on thousands of idle streams. */
  #duplex: StreamDuplex | null = null;

  constructor(stream: FramedStream, headers: PeerHeaders, isServer: boolean) {
    this.#stream = stream;
    this.headers = headers;
    this.#isServer = isServer;
  }

  get duplex(): Duplex {
    this.#duplex ??= new StreamDuplex(this.#stream, () => this.reset());
    return this.#duplex;
  }

  carry(socket: Socket, socketIs: CopySide): Copy | null {
    if (this.#duplex !== null) return null;
    return new SocketCarry(this.#stream, socket, socketIs, (why) => this.reset(why));
  }

  reset(why: Abort = 'unread'): void {
    this.#stream.reset(this.#code(why));
    this.#duplex?.destroy();
  }

  #code(why: Abort): number {
    if (why === 'reset') return errorCode.connectError;
    // A client takes CANCEL for an end and keeps reading the bytes on their way.
    if (why === 'cut') return errorCode.internalError;
    // A server that has sent END_STREAM wants no more, which is no failure (docs/spec/hbone.md §8).
    return this.#isServer && this.#stream.localEnded ? errorCode.noError : errorCode.cancel;
  }
}
