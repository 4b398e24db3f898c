import { ById } from '../../collections/by-id.ts';
import type { TLSSocket } from 'node:tls';
import type { TunnelStream } from '../engine.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { FrameParser } from './frame-parser.ts';
import type { FrameHeader, FrameReceiver } from './frame-parser.ts';
import {
  DEFAULT_WINDOW,
  MAX_WINDOW,
  errorCode,
  fault,
  frameFlag,
  frameType,
  peerFault,
  rstStreamFrame,
  windowUpdateFrame,
} from './frames.ts';
import { Output } from './output.ts';
import type { PeerSettings } from './peer-settings.ts';
import type { ReceiveWindows } from './receive-windows.ts';
import { ENDED } from './resets.ts';
import { FramedStream } from './stream.ts';
import type { StreamHost } from './stream.ts';
import { FramedTunnelStream } from './tunnel-stream.ts';
import type { Wire, WireHost } from './wire.ts';

/** The bounds of received frames. */
export interface FrameLimits {
  readonly maxFrameSize: number;
  readonly maxBlockBytes: number;
  /** Whether the client's preface comes first. */
  readonly preface: boolean;
}

/** Moves the bytes of a connection in this thread, over node:tls (RFC 9113 §5, §6.1, §6.9). */
export class FramedWire implements Wire, FrameReceiver, StreamHost {
  readonly live = new ById<FramedStream>();
  readonly output: Output;
  readonly #socket: TLSSocket;
  readonly #host: WireHost;
  readonly #parser: FrameParser;
  /** The window that the peer gives a new stream. */
  #initialWindow = DEFAULT_WINDOW;
  /** The stream of the DATA frame that is arriving, null when nobody reads it. */
  #reading: FramedStream | null = null;
  /** Received bytes of its content. */
  #content = 0;

  constructor(socket: TLSSocket, host: WireHost, limits: FrameLimits) {
    this.#socket = socket;
    this.#host = host;
    this.#parser = new FrameParser(this, limits);
    this.output = new Output(socket, (bytes) => host.sent(bytes));
  }

  get destroyed(): boolean {
    return this.#socket.destroyed;
  }

  get heard(): number {
    return this.#socket.bytesRead;
  }

  get windows(): ReceiveWindows {
    return this.#host.windows;
  }

  get bytes(): WireHost['bytes'] {
    return this.#host.bytes;
  }

  start(): void {
    this.#socket.on('error', (error) => this.#host.failed(error));
    this.#socket.once('close', () => this.#host.gone());
    this.#socket.on('data', (chunk: Buffer) => {
      if (this.#host.over) return;
      this.#host.guard(() => this.#parser.push(chunk));
      this.#host.bytes.relieve();
    });
    // It was paused since the handshake.
    this.#socket.resume();
  }

  open(id: number): FramedStream {
    const windows = { send: this.#initialWindow, receive: this.#host.windows.stream };
    const stream = new FramedStream(id, this, windows);
    this.live.add(stream);
    return stream;
  }

  opened(stream: FramedStream, headers: PeerHeaders, isServer: boolean): TunnelStream {
    return new FramedTunnelStream(stream, headers, isServer);
  }

  ignore(): void {
    // A stream that was not opened has nothing to drop.
  }

  control(frames: Buffer): boolean {
    return this.output.control(frames);
  }

  applySettings(settings: PeerSettings, growth: number, acknowledgement: Buffer): void {
    this.output.maxFrameSize = settings.maxFrameSize;
    this.#initialWindow = settings.initialWindow;
    this.#host.control(acknowledgement);
    if (growth === 0) return;
    for (const stream of this.live) {
      stream.sendWindow += growth;
      if (stream.sendWindow > MAX_WINDOW) throw overflow('opened its window too far');
      this.output.ready(stream);
    }
  }

  resize(window: number): void {
    for (const stream of this.live) stream.resizeWindow(window);
  }

  finish(): void {
    this.output.finish(() => this.#socket.end());
  }

  destroy(): void {
    this.#socket.destroy();
  }

  frameBegins(header: Readonly<FrameHeader>): void {
    if (this.#host.over) return;
    this.#host.frameBegins(header);
    if (header.type === frameType.data) this.#dataBegins(header.id, header.length);
  }

  frame(header: Readonly<FrameHeader>, payload: Buffer): void {
    if (this.#host.over) return;
    if (header.type !== frameType.windowUpdate) this.#host.frame(header, payload);
    else this.#takeWindow(header.id, payload.readUInt32BE() & MAX_WINDOW);
  }

  data(piece: Buffer): void {
    this.#content += piece.length;
    const stream = this.#reading;
    if (stream === null || stream.over) return;
    if (stream.contentLeft !== null) stream.contentLeft -= piece.length;
    stream.receive(piece);
  }

  dataEnds({ flags, length }: Readonly<FrameHeader>): void {
    const stream = this.#reading;
    this.#reading = null;
    const endsStream = (flags & frameFlag.endStream) !== 0;
    if (this.#content === 0 && !endsStream) this.#host.spendIdleFrame();
    if (stream === null || stream.over) return;
    // Padding counts for flow control, and nobody reads it (§6.1).
    if (length > this.#content) stream.discard(length - this.#content);
    if (!endsStream) return;
    if ((stream.contentLeft ?? 0) === 0) stream.remoteEnd();
    else this.#host.breached(stream, errorCode.protocolError);
  }

  release(stream: FramedStream, bytes: number): void {
    this.#host.control(windowUpdateFrame(stream.id, bytes));
  }

  /** As {@link Wire.resetStream} for a number; for a stream, has the session reset it. */
  resetStream(stream: FramedStream | number, code: number): void {
    if (typeof stream === 'number') this.#host.control(rstStreamFrame(stream, code));
    else this.#host.resetStream(stream, code);
  }

  streamDone(stream: FramedStream): void {
    this.#host.forget(stream, 'done', ENDED);
  }

  #dataBegins(id: number, length: number): void {
    if (id === 0) throw fault('DATA without a stream');
    if (!this.#host.windows.take(length)) throw overflow('sent more than the connection window');
    this.#content = 0;
    this.#reading = null;
    const stream = this.live.get(id);
    if (stream === undefined) this.#host.stray(frameType.data, id);
    else if (stream.remoteEnded) this.#host.breached(stream, errorCode.streamClosed);
    // DATA before the answer (RFC 9113 §8.1).
    else if (stream.onHead !== null) this.#host.breached(stream, errorCode.protocolError);
    else if (length > Math.max(0, stream.receiveWindow)) {
      this.#host.breached(stream, errorCode.flowControlError);
    } else {
      stream.receiveWindow -= length;
      this.#reading = stream;
    }
  }

  #takeWindow(id: number, increment: number): void {
    this.#host.spendWindowUpdate();
    if (id === 0) {
      if (increment === 0) throw fault('a WINDOW_UPDATE of nothing');
      this.output.window += increment;
      if (this.output.window > MAX_WINDOW) throw overflow('opened its window too far');
      this.output.flush();
      return;
    }
    const stream = this.live.get(id);
    if (stream === undefined) {
      this.#host.stray(frameType.windowUpdate, id);
      return;
    }
    stream.sendWindow += increment;
    if (increment === 0) this.#host.breached(stream, errorCode.protocolError);
    else if (stream.sendWindow <= MAX_WINDOW) this.output.ready(stream);
    else this.#host.breached(stream, errorCode.flowControlError);
  }
}

function overflow(what: string): Error {
  return peerFault(errorCode.flowControlError, what);
}
