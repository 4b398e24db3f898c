import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { MeshError } from '../../errors/mesh-error.ts';
import { closeFd } from '../../linux/netns.ts';
import { resetOnClose } from '../../linux/sockets.ts';
import type { Abort, Copy, CopySide } from '../../net/bidi-copy.ts';
import { detachSocket } from '../../net/splice-sockets.ts';
import { resetSocket } from '../../net/socket.ts';
import { errorCode } from '../engine-framing/frames.ts';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { CarriedCopy } from './carried-copy.ts';
import { CarriedDuplex } from './carried-duplex.ts';
import type { CarriedStream } from './carried-stream.ts';

/** A carried stream whose request was answered with 200. */
export class CarriedTunnelStream implements TunnelStream {
  readonly headers: PeerHeaders;
  readonly #stream: CarriedStream;
  readonly #isServer: boolean;
  /** Made on first use: tunnels in tunnels and sockets that cannot leave JavaScript need it. */
  #duplex: CarriedDuplex | null = null;

  constructor(stream: CarriedStream, headers: PeerHeaders, isServer: boolean) {
    this.#stream = stream;
    this.headers = headers;
    this.#isServer = isServer;
  }

  get duplex(): Duplex {
    this.#duplex ??= new CarriedDuplex(this.#stream, () => this.reset());
    return this.#duplex;
  }

  carry(socket: Socket, socketIs: CopySide): Copy | null {
    if (this.#duplex !== null) return null;
    if (socket.destroyed || this.#stream.over) {
      // One of both has ended before they were joined.
      resetSocket(socket);
      this.reset('reset');
      return new CarriedCopy(this.#stream, socketIs, null);
    }
    // Bytes wait in JavaScript to be written.
    if (socket.writableLength > 0) return null;
    socket.on('error', ignore);
    const detached = detachSocket(socket);
    try {
      return new CarriedCopy(this.#stream, socketIs, detached);
    } catch (error) {
      resetOnClose(detached.fd);
      closeFd(detached.fd);
      if (!(error instanceof MeshError)) throw error;
      this.reset('cut');
      throw error;
    }
  }

  reset(why: Abort = 'unread'): void {
    this.#stream.reset(this.#code(why));
    this.#duplex?.destroy();
  }

  #code(why: Abort): number {
    if (why === 'reset') return errorCode.connectError;
    // A client takes CANCEL for an end and keeps reading the bytes on their way.
    if (why === 'cut') return errorCode.internalError;
    // A server that has said all it had wants no more, which is no failure (docs/spec/hbone.md §8).
    const saidAll = this.#duplex?.writableFinished === true;
    return this.#isServer && saidAll ? errorCode.noError : errorCode.cancel;
  }
}

/** The descriptor lives on; errors of the socket that let it go mean nothing. */
function ignore(): void {}
