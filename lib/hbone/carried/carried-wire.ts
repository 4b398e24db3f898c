import { ById } from '../../collections/by-id.ts';
import { CarriedLink, LINK_CAUSE, STREAM_CAUSE } from '../../linux/carry.ts';
import type { CarryLinkOptions, LinkReceiver, StreamEnded } from '../../linux/carry.ts';
import { isOrdinaryEnd } from '../../net/bidi-copy.ts';
import {
  ConnectionFault,
  FRAME_HEADER_BYTES,
  MAX_STREAM_ID,
  frameType,
} from '../session/frames.ts';
import type { PeerSettings } from '../session/peer-settings.ts';
import { ENDED, breach } from '../session/resets.ts';
import type { Wire, WireHost } from '../session/wire.ts';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { alertText } from './alerts.ts';
import { CarriedStream } from './carried-stream.ts';
import { CarriedTunnelStream } from './tunnel-stream.ts';

/** Options of a link that its session does not know. */
export type LinkStart = Omit<CarryLinkOptions, 'streamWindow' | 'connectionWindow'>;

/** The end of a stream that no thread has carried. */
const NEVER_CARRIED: StreamEnded = {
  cause: STREAM_CAUSE.link,
  code: 0,
  errno: null,
  counts: {
    fromSocket: 0,
    fromStream: 0,
    firstFromSocketMs: undefined,
    firstFromStreamMs: undefined,
  },
  peerEnded: false,
};

/** Has a native thread move the bytes of a connection. Frames other than DATA and WINDOW_UPDATE come and go as bytes. */
export class CarriedWire implements Wire, LinkReceiver {
  readonly live = new ById<CarriedStream>();
  destroyed = false;
  readonly #host: WireHost;
  readonly #link: CarriedLink;
  readonly #isServer: boolean;
  readonly #isLocal: boolean;
  readonly #ignorePressure: () => void;
  readonly #onGone: () => void;
  /** Streams whose end the thread has not reported yet. */
  readonly #carried = new ById<CarriedStream>();
  #isGone = false;
  #queued = 0;
  #received = 0;

  /** Takes the descriptor unless it throws NATIVE_SYSCALL. `onGone` is called when the thread has closed it. */
  constructor(host: WireHost, start: LinkStart, threads: number, onGone: () => void = () => {}) {
    this.#host = host;
    this.#onGone = onGone;
    this.#isServer = start.isServer;
    this.#isLocal = start.cipher === 'none';
    const { windows, bytes } = host;
    const options = {
      ...start,
      streamWindow: windows.stream,
      connectionWindow: windows.first.connection,
    };
    this.#link = new CarriedLink(options, this, threads);
    if (bytes.pressed) this.#link.pressure(true);
    this.#ignorePressure = bytes.onPressure(() => this.#link.pressure(bytes.pressed));
  }

  get isDone(): boolean {
    return this.#isGone && this.#carried.size === 0;
  }

  get heard(): number {
    return this.#link.heard;
  }

  get waits(): boolean {
    return this.#queued > 0;
  }

  open(id: number): CarriedStream {
    const stream = new CarriedStream(id, this.#host, this.#link);
    if (!this.#isServer) this.#link.open(id);
    this.live.add(stream);
    this.#carried.add(stream);
    return stream;
  }

  opened(stream: CarriedStream, headers: PeerHeaders, isServer: boolean): TunnelStream {
    return new CarriedTunnelStream(stream, headers, isServer);
  }

  control(frames: Buffer): void {
    this.#link.control(frames);
  }

  resetStream(id: number, code: number): void {
    const stream = this.live.get(id);
    if (stream !== undefined) stream.isReset = true;
    this.#link.reset(id, code);
  }

  applySettings(settings: PeerSettings, acknowledgement: Buffer): void {
    this.#link.peerSettings(settings.initialWindow, settings.maxFrameSize);
    this.#link.control(acknowledgement);
  }

  resize(stream: number, connection: number): void {
    this.#link.windows(stream, connection);
  }

  finish(): void {
    this.#link.finish();
  }

  destroy(): void {
    this.destroyed = true;
    this.#link.destroy();
  }

  frames(frames: Buffer): void {
    if (this.#host.over) return;
    this.#host.guard(() => this.#takeFrames(frames));
    this.#host.bytes.relieve();
  }

  ended(id: number, end: StreamEnded): void {
    const stream = this.#carried.delete(id);
    // The session has refused the request.
    if (stream === undefined) return;
    stream.ended(end);
    if (!stream.over) this.#judge(stream, end);
  }

  remoteEnd(id: number): void {
    const stream = this.#carried.get(id);
    if (stream !== undefined) stream.remoteEnded = true;
  }

  endSent(id: number): void {
    this.#carried.get(id)?.endSent();
  }

  over(id: number, code: number | null): void {
    const stream = this.#carried.get(id);
    if (stream === undefined) return;
    stream.delivers = true;
    if (stream.over) return;
    if (code === null) this.#host.forget(stream, 'done', ENDED);
    else this.#host.peerReset(stream, code, true);
  }

  fault(code: number, text: string): void {
    this.#host.fail(new ConnectionFault(code, text));
  }

  held(queued: number, received: number): void {
    const { bytes, windows } = this.#host;
    bytes.charge(queued - this.#queued);
    windows.queue(received - this.#received);
    this.#queued = queued;
    this.#received = received;
    bytes.relieve();
  }

  gone(cause: number, detail: number, errno: string | null): void {
    this.destroyed = true;
    this.#isGone = true;
    this.#ignorePressure();
    this.#onGone();
    // The socket of a link without a cipher is local: what has failed is told by the connection behind it.
    const failure = this.#isLocal ? null : linkFailure(cause, detail, errno);
    if (failure !== null) this.#host.failed(failure);
    for (const stream of this.#carried) {
      if (stream.delivers) continue;
      // It was opened while the link ended.
      this.#carried.delete(stream.id);
      stream.ended(NEVER_CARRIED);
    }
    this.#host.gone();
  }

  #takeFrames(frames: Buffer): void {
    let at = 0;
    while (at < frames.length && !this.#host.over) {
      const header = {
        length: frames.readUIntBE(at, 3),
        type: frames.readUInt8(at + 3),
        flags: frames.readUInt8(at + 4),
        id: frames.readUInt32BE(at + 5) & MAX_STREAM_ID,
      };
      const from = at + FRAME_HEADER_BYTES;
      at = from + header.length;
      // The end of the stream follows, and tells what had come before the reset.
      const isReset = header.type === frameType.rstStream && this.live.get(header.id) !== undefined;
      if (!isReset) this.#host.frame(header, frames.subarray(from, at));
    }
  }

  /** Tells the session of the end of a stream that it has not ended itself. */
  #judge(stream: CarriedStream, { cause, code, errno, peerEnded }: StreamEnded): void {
    const host = this.#host;
    switch (cause) {
      case STREAM_CAUSE.done:
        host.forget(stream, 'done', ENDED);
        break;
      case STREAM_CAUSE.peerReset:
        host.peerReset(stream, code, peerEnded);
        break;
      case STREAM_CAUSE.link:
        // The end of the link follows, and tells why.
        break;
      case STREAM_CAUSE.broke:
        host.resetSent(stream, { error: breach(code), broken: true });
        break;
      default:
        host.resetSent(stream, { error: socketFailure(errno), broken: true });
    }
  }
}

/** The failure of a link, null for an ordinary end. */
function linkFailure(cause: number, detail: number, errno: string | null): Error | null {
  switch (cause) {
    case LINK_CAUSE.socket:
      return Object.assign(new Error(`the connection failed: ${errno}`), { code: errno });
    case LINK_CAUSE.alert:
      return new Error(`the peer ended TLS (${alertText(detail)})`);
    case LINK_CAUSE.tlsFault:
      return new Error(`the peer broke the rules of TLS (${alertText(detail)})`);
    case LINK_CAUSE.internal:
      return new Error('the connection could not be encrypted any more');
    default:
      return null;
  }
}

/** The failure of an application's socket, null for a reset, which is passed on and is no failure. */
function socketFailure(errno: string | null): Error | null {
  if (errno === null) return null;
  const error = Object.assign(new Error(`the connection failed: ${errno}`), { code: errno });
  return isOrdinaryEnd(error) ? null : error;
}
