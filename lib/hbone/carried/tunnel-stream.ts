import type { Duplex } from 'node:stream';
import { MeshError } from '../../errors/mesh-error.ts';
import { closeFd } from '../../linux/netns.ts';
import { resetOnClose } from '../../linux/sockets.ts';
import type { Abort, Copy, CopySide } from '../../net/bidi-copy.ts';
import { localPair } from '../../net/local-pair.ts';
import type { RawSocket } from '../../net/raw-socket.ts';
import type { LocalStream, TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { errorCode } from '../session/frames.ts';
import { CarriedCopy } from './carried-copy.ts';
import { CarriedDuplex } from './carried-duplex.ts';
import type { StreamOver } from '../session/resets.ts';
import type { CarriedStream, StreamWatcher } from './carried-stream.ts';

/** A stream whose request was answered with 200. A native thread joins it with a socket. */
export class CarriedTunnelStream implements TunnelStream {
  readonly headers: PeerHeaders;
  readonly #stream: CarriedStream;
  readonly #isServer: boolean;
  #duplex: Duplex | null = null;

  constructor(stream: CarriedStream, headers: PeerHeaders, isServer: boolean) {
    this.#stream = stream;
    this.headers = headers;
    this.#isServer = isServer;
  }

  /** Made on first use: only sockets that cannot leave JavaScript need it. */
  get duplex(): Duplex {
    this.#duplex ??= new CarriedDuplex(this.#stream, () => this.reset());
    return this.#duplex;
  }

  carry(socket: RawSocket, socketIs: CopySide): Copy | null {
    if (this.#duplex !== null) return null;
    const stream = this.#stream;
    if (stream.holds(socket)) return new CarriedCopy(stream, socketIs, (copy) => stream.join(copy));
    if (socket.gone || (stream.over && !stream.delivers)) {
      // One of both has ended before they were joined.
      socket.reset();
      this.reset('reset');
      return new CarriedCopy(stream, socketIs, null);
    }
    // Bytes wait in JavaScript to be written.
    if (!socket.mayLeave) return null;
    const detached = socket.take();
    try {
      return new CarriedCopy(stream, socketIs, (copy) => stream.attach(detached, copy));
    } catch (error) {
      resetOnClose(detached.fd);
      closeFd(detached.fd);
      if (!(error instanceof MeshError)) throw error;
      this.reset('cut');
      throw error;
    }
  }

  toSocket(): LocalStream {
    const stream = this.#stream;
    if (stream.over && !stream.delivers) {
      throw new MeshError('TUNNEL_RESET', 'the stream has ended already');
    }
    const { socket, fd } = localPair();
    const end = new StreamOverNews();
    try {
      stream.attach({ fd, first: null, read: null }, end);
    } catch (error) {
      socket.destroy();
      closeFd(fd);
      throw error;
    }
    return { socket, onOver: (listener) => end.tell(listener) };
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

/** Tells of the end of a stream at once: what carries bytes inside of it may learn of its own end in the same turn. */
class StreamOverNews implements StreamWatcher {
  readonly #listeners: ((error: Error | null) => void)[] = [];
  #over: StreamOver | null = null;

  onClosed(over: StreamOver): void {
    this.#over = over;
    for (const listener of this.#listeners.splice(0)) listener(over.error);
  }

  tell(listener: (error: Error | null) => void): void {
    if (this.#over === null) this.#listeners.push(listener);
    else listener(this.#over.error);
  }
}
