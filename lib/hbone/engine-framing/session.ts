import { MeshError } from '../../errors/mesh-error.ts';
import type { Tunnel } from '../engine.ts';
import type { FrameHeader } from './frame-parser.ts';
import {
  MAX_STREAM_ID,
  MAX_WINDOW,
  errorCode,
  fault,
  frameFlag,
  frameType,
  peerFault,
  rstStreamFrame,
  windowUpdateFrame,
} from './frames.ts';
import type { HeaderBlock } from './header-block.ts';
import { trailersFault } from './header-rules.ts';
import type { FieldList } from './hpack-decoder.ts';
import { FramingLink } from './link.ts';
import { ENDED, endByReset } from './resets.ts';
import type { StreamOver } from './resets.ts';
import { FramedStream } from './stream.ts';
import type { StreamHost } from './stream.ts';
import { EndedStreams, LiveStreams } from './stream-index.ts';
import type { StreamEnd } from './stream-index.ts';

const PRIORITY_BYTES = 5;

/** The streams of one connection (RFC 9113 §5, §6), for client and server. */
export abstract class FramingSession extends FramingLink implements Tunnel, StreamHost {
  protected readonly live = new LiveStreams<FramedStream>();
  protected readonly ended = new EndedStreams();
  /** The stream of the DATA frame that is arriving, null when nobody reads it. */
  #reading: FramedStream | null = null;
  /** Received bytes of its content. */
  #content = 0;

  get streams(): number {
    return this.live.size;
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
    if (this.#content === 0 && !endsStream) this.spendIdleFrame();
    if (stream === null || stream.over) return;
    // Padding counts for flow control, and nobody reads it (§6.1).
    if (length > this.#content) stream.discard(length - this.#content);
    if (!endsStream) return;
    if ((stream.contentLeft ?? 0) === 0) stream.remoteEnd();
    else this.#breaches(stream, errorCode.protocolError);
  }

  sendRead(stream: FramedStream, bytes: number): boolean {
    return !this.over && this.output.sendRead(stream, bytes);
  }

  release(stream: FramedStream, bytes: number): void {
    this.control(windowUpdateFrame(stream.id, bytes));
  }

  resetStream(stream: FramedStream, code: number, error: Error | null = null): void {
    this.counters.resetSent += 1;
    this.control(rstStreamFrame(stream.id, code));
    // The peer may have sent one header list before it learns of the reset.
    this.idleFrames.earn(1);
    this.#forget(stream, 'reset-by-us', { error, broken: true });
  }

  streamDone(stream: FramedStream): void {
    this.#forget(stream, 'done', ENDED);
  }

  /** A header list has come for a stream that is not open. */
  protected abstract headersOutside(block: HeaderBlock, list: FieldList): void;
  /** Whether nothing may have come yet on this stream. */
  protected abstract isIdle(id: number): boolean;

  protected newStream(id: number): FramedStream {
    const stream = new FramedStream(id, this, {
      send: this.peerSettings.initialWindow,
      receive: this.windows.stream,
    });
    this.live.add(stream);
    this.counters.opened += 1;
    return stream;
  }

  /** Resets a stream that was never made, or that is over. */
  protected refuse(id: number, code: number): void {
    this.spendIdleFrame();
    this.ended.add(id, 'reset-by-us');
    this.control(rstStreamFrame(id, code));
  }

  protected override dataBegins(id: number, length: number): void {
    if (id === 0) throw fault('DATA without a stream');
    if (!this.windows.take(length)) throw overflow('sent more than the connection window');
    this.#content = 0;
    const stream = this.live.get(id);
    if (stream === undefined) this.#dataOutside(id);
    else if (stream.remoteEnded) this.#breaches(stream, errorCode.streamClosed);
    else if (length > Math.max(0, stream.receiveWindow)) {
      this.#breaches(stream, errorCode.flowControlError);
    } else {
      stream.receiveWindow -= length;
      this.#reading = stream;
    }
  }

  protected override streamFrame(type: number, id: number, payload: Buffer): void {
    switch (type) {
      case frameType.windowUpdate:
        this.#takeWindow(id, payload.readUInt32BE() & MAX_WINDOW);
        break;
      case frameType.rstStream:
        this.#takeReset(id, payload.readUInt32BE());
        break;
      default:
        this.#takePriority(id, payload);
    }
  }

  protected override headersTaken(block: HeaderBlock, list: FieldList): void {
    const stream = this.live.get(block.id);
    if (stream === undefined) this.headersOutside(block, list);
    else if (stream.onHead === null) this.#takeTrailers(stream, block, list);
    else {
      stream.onHead(list);
      if (block.endStream && !stream.over) stream.remoteEnd();
    }
  }

  protected override windowsGrown(by: number): void {
    if (by === 0) return;
    for (const stream of this.live) {
      stream.sendWindow += by;
      if (stream.sendWindow > MAX_WINDOW) throw overflow('opened its window too far');
      this.output.ready(stream);
    }
  }

  protected override resizeStreams(window: number): void {
    for (const stream of this.live) stream.resizeWindow(window);
  }

  protected override endStreams(error: Error | null): void {
    this.#reading = null;
    for (const stream of this.live.clear()) stream.finish({ error, broken: true });
    this.changed();
  }

  /** Takes HEADERS on a stream that has ended (§5.1). */
  protected headersAfterEnd(id: number): void {
    switch (this.ended.get(id)) {
      case 'reset-by-us':
        // The peer sent them before it knew. Each reset has earned one such frame.
        this.spendIdleFrame();
        break;
      case 'reset-by-peer':
        this.refuse(id, errorCode.streamClosed);
        break;
      case 'done':
        throw fault('HEADERS on a closed stream', errorCode.streamClosed);
      case undefined:
        throw fault('HEADERS on a stream below one it has opened');
    }
  }

  #dataOutside(id: number): void {
    if (this.isIdle(id)) throw fault('DATA on a stream that was never opened');
    if (this.ended.get(id) !== 'reset-by-us') this.refuse(id, errorCode.streamClosed);
  }

  #takeTrailers(stream: FramedStream, block: HeaderBlock, list: FieldList): void {
    if (stream.remoteEnded) this.#breaches(stream, errorCode.streamClosed);
    else if (!block.endStream || list.oversized || trailersFault(list.fields) !== null) {
      this.#breaches(stream, errorCode.protocolError);
    } else {
      stream.remoteEnd();
    }
  }

  #takeWindow(id: number, increment: number): void {
    if (!this.windowUpdates.spend()) {
      throw peerFault(errorCode.enhanceYourCalm, 'floods the tunnel with WINDOW_UPDATEs');
    }
    if (id === 0) {
      if (increment === 0) throw fault('a WINDOW_UPDATE of nothing');
      this.output.window += increment;
      if (this.output.window > MAX_WINDOW) throw overflow('opened its window too far');
      this.output.flush();
      return;
    }
    const stream = this.live.get(id);
    if (stream === undefined) {
      if (this.isIdle(id)) throw fault('a WINDOW_UPDATE on a stream that was never opened');
      return;
    }
    stream.sendWindow += increment;
    if (increment === 0) this.#breaches(stream, errorCode.protocolError);
    else if (stream.sendWindow <= MAX_WINDOW) this.output.ready(stream);
    else this.#breaches(stream, errorCode.flowControlError);
  }

  #takeReset(id: number, code: number): void {
    if (this.isIdle(id)) throw fault('a RST_STREAM on a stream that was never opened');
    const stream = this.live.get(id);
    if (stream === undefined) {
      this.spendIdleFrame();
      return;
    }
    this.counters.resetReceived += 1;
    stream.resetCode = code;
    this.#forget(stream, 'reset-by-peer', endByReset(code, stream.remoteEnded));
  }

  #takePriority(id: number, payload: Buffer): void {
    this.spendIdleFrame();
    if (id === 0) throw fault('a PRIORITY without a stream');
    const isShort = payload.length !== PRIORITY_BYTES;
    if (!isShort && (payload.readUInt32BE() & MAX_STREAM_ID) !== id) return;
    const code = isShort ? errorCode.frameSizeError : errorCode.protocolError;
    const stream = this.live.get(id);
    if (stream === undefined) throw fault('a wrong PRIORITY', code);
    this.#breaches(stream, code);
  }

  /** Resets a stream on which the peer broke a rule. */
  #breaches(stream: FramedStream, code: number): void {
    const why = `the peer broke the protocol on the stream (code ${code})`;
    this.resetStream(stream, code, new MeshError('TUNNEL_PROTOCOL', why, { detail: { code } }));
  }

  #forget(stream: FramedStream, end: StreamEnd, over: StreamOver): void {
    this.live.delete(stream.id);
    this.ended.add(stream.id, end);
    if (this.#reading === stream) this.#reading = null;
    stream.finish(over);
    this.changed();
  }
}

function overflow(what: string): Error {
  return peerFault(errorCode.flowControlError, what);
}
