import type { Tunnel } from '../engine.ts';
import { MAX_STREAM_ID, errorCode, fault, frameType } from './frames.ts';
import type { HeaderBlock } from './header-block.ts';
import { trailersFault } from './header-rules.ts';
import type { FieldList } from './hpack-decoder.ts';
import { FramingLink } from './link.ts';
import { breach, endByReset } from './resets.ts';
import type { StreamOver } from './resets.ts';
import { EndedStreams } from './ended-streams.ts';
import type { StreamEnd } from './ended-streams.ts';
import type { OpenStreams, SessionStream, WireHost } from './wire.ts';

const PRIORITY_BYTES = 5;

/** The streams of one connection without their bytes (RFC 9113 §5, §6), for client and server. */
export abstract class FramingSession extends FramingLink implements Tunnel, WireHost {
  protected readonly ended = new EndedStreams();

  get streams(): number {
    return this.live.size;
  }

  resetStream(stream: SessionStream, code: number, error: Error | null = null): void {
    this.wire.resetStream(stream.id, code);
    this.resetSent(stream, { error, broken: true });
  }

  resetSent(stream: SessionStream, over: StreamOver): void {
    this.counters.resetSent += 1;
    // The peer may have sent one header list before it learns of the reset.
    this.idleFrames.earn(1);
    this.forget(stream, 'reset-by-us', over);
  }

  peerReset(stream: SessionStream, code: number, remoteEnded: boolean): void {
    this.counters.resetReceived += 1;
    stream.resetCode = code;
    this.forget(stream, 'reset-by-peer', endByReset(code, remoteEnded));
  }

  forget(stream: SessionStream, end: StreamEnd, over: StreamOver): void {
    this.live.delete(stream.id);
    this.ended.add(stream.id, end);
    stream.finish(over);
    this.changed();
  }

  protected get live(): OpenStreams {
    return this.wire.live;
  }

  /** A header list has come for a stream that is not open. */
  protected abstract headersOutside(block: HeaderBlock, list: FieldList): void;
  /** Whether nothing may have come yet on this stream. */
  protected abstract isIdle(id: number): boolean;

  protected newStream(id: number): SessionStream {
    this.counters.opened += 1;
    return this.wire.open(id);
  }

  /** Resets a stream that was never made, or that is over. */
  protected refuse(id: number, code: number): void {
    this.spendIdleFrame();
    this.ended.add(id, 'reset-by-us');
    this.wire.resetStream(id, code);
  }

  protected override streamFrame(type: number, id: number, payload: Buffer): void {
    if (type === frameType.rstStream) this.#takeReset(id, payload.readUInt32BE());
    else this.#takePriority(id, payload);
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

  protected override endStreams(error: Error | null): void {
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

  /** Resets a stream on which the peer broke a rule. */
  #breached(stream: SessionStream, code: number): void {
    this.resetStream(stream, code, breach(code));
  }

  #takeTrailers(stream: SessionStream, block: HeaderBlock, list: FieldList): void {
    if (stream.remoteEnded) this.#breached(stream, errorCode.streamClosed);
    else if (!block.endStream || list.oversized || trailersFault(list.fields) !== null) {
      this.#breached(stream, errorCode.protocolError);
    } else {
      stream.remoteEnd();
    }
  }

  #takeReset(id: number, code: number): void {
    if (this.isIdle(id)) throw fault('a RST_STREAM on a stream that was never opened');
    const stream = this.live.get(id);
    if (stream === undefined) {
      this.spendIdleFrame();
      // The peer knows that it is over: it sends nothing more that crosses our own reset.
      if (this.ended.get(id) === 'reset-by-us') this.ended.add(id, 'reset-by-peer');
    } else this.peerReset(stream, code, stream.remoteEnded);
  }

  #takePriority(id: number, payload: Buffer): void {
    this.spendIdleFrame();
    if (id === 0) throw fault('a PRIORITY without a stream');
    const isShort = payload.length !== PRIORITY_BYTES;
    if (!isShort && (payload.readUInt32BE() & MAX_STREAM_ID) !== id) return;
    const code = isShort ? errorCode.frameSizeError : errorCode.protocolError;
    const stream = this.live.get(id);
    if (stream === undefined) throw fault('a wrong PRIORITY', code);
    this.#breached(stream, code);
  }
}
