import {
  CLIENT_PREFACE,
  ConnectionFault,
  FRAME_HEADER_BYTES,
  MAX_STREAM_ID,
  errorCode,
  fault,
  frameFlag,
  frameType,
} from './frames.ts';
import { MAX_GOAWAY_BYTES, MAX_SETTINGS_PER_FRAME } from './limits.ts';

/** A frame's header. */
export interface FrameHeader {
  type: number;
  flags: number;
  id: number;
  length: number;
}

/** Receives the parsed frames. An error it throws ends the parsing. */
export interface FrameReceiver {
  /** A frame begins. Its header is valid during this call only. */
  frameBegins(header: Readonly<FrameHeader>): void;
  /** A complete frame other than DATA. `payload` is valid during this call only. Frames of skipped types are not passed on. */
  frame(header: Readonly<FrameHeader>, payload: Buffer): void;
  /** A piece of the content of the DATA frame that has begun. The receiver may keep it. */
  data(piece: Buffer): void;
  /** The DATA frame is over. */
  dataEnds(header: Readonly<FrameHeader>): void;
}

/** The part of a frame that the parser reads next. */
type Stage = 'preface' | 'header' | 'payload' | 'pad-length' | 'content' | 'skip';

/** Payload lengths of the types with one fixed length. */
const FIXED_LENGTHS: ReadonlyMap<number, number> = new Map([
  [frameType.rstStream, 4],
  [frameType.ping, 8],
  [frameType.windowUpdate, 4],
]);

const KNOWN_TYPES = 10;

/**
 * Cuts a byte stream into frames, however it arrives (RFC 9113 §4). DATA passes through as it comes; other frames are gathered within
 * their bounds. The parser checks each frame's header and throws {@link ConnectionFault}.
 */
export class FrameParser {
  readonly #receiver: FrameReceiver;
  readonly #maxFrameSize: number;
  readonly #maxBlock: number;
  readonly #header: FrameHeader = { type: 0, flags: 0, id: 0, length: 0 };
  #stage: Stage;
  /** The received part of a header or payload that arrives in pieces. */
  #partial: Buffer | null = null;
  #filled = 0;
  /** Bytes of content or padding still to come. */
  #left = 0;
  #padding = 0;

  /** `maxBlockBytes` bounds one HEADERS or CONTINUATION; a server waits for the preface first. */
  constructor(
    receiver: FrameReceiver,
    options: {
      readonly maxFrameSize: number;
      readonly maxBlockBytes: number;
      readonly preface: boolean;
    },
  ) {
    this.#receiver = receiver;
    this.#maxFrameSize = options.maxFrameSize;
    this.#maxBlock = options.maxBlockBytes;
    this.#stage = options.preface ? 'preface' : 'header';
  }

  /** Takes the next bytes. */
  push(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      switch (this.#stage) {
        case 'header':
          at = this.#readHeader(chunk, at);
          break;
        case 'content':
          at = this.#readContent(chunk, at);
          break;
        case 'payload':
          at = this.#readPayload(chunk, at);
          break;
        case 'pad-length':
          at = this.#readPadLength(chunk, at);
          break;
        case 'skip':
          at = this.#skip(chunk, at);
          break;
        case 'preface':
          at = this.#readPreface(chunk, at);
          break;
      }
    }
  }

  #readPreface(chunk: Buffer, at: number): number {
    const take = Math.min(CLIENT_PREFACE.length - this.#filled, chunk.length - at);
    if (CLIENT_PREFACE.compare(chunk, at, at + take, this.#filled, this.#filled + take) !== 0) {
      throw new ConnectionFault(errorCode.protocolError, 'the peer does not speak HTTP/2');
    }
    this.#filled += take;
    if (this.#filled === CLIENT_PREFACE.length) {
      this.#filled = 0;
      this.#stage = 'header';
    }
    return at + take;
  }

  #readHeader(chunk: Buffer, at: number): number {
    if (this.#filled === 0 && chunk.length - at >= FRAME_HEADER_BYTES) {
      this.#begin(chunk, at);
      return at + FRAME_HEADER_BYTES;
    }
    const partial = (this.#partial ??= Buffer.allocUnsafe(FRAME_HEADER_BYTES));
    const copied = chunk.copy(partial, this.#filled, at);
    this.#filled += copied;
    if (this.#filled === FRAME_HEADER_BYTES) {
      this.#partial = null;
      this.#filled = 0;
      this.#begin(partial, 0);
    }
    return at + copied;
  }

  #begin(bytes: Buffer, at: number): void {
    const header = this.#header;
    header.length = bytes.readUIntBE(at, 3);
    header.type = bytes[at + 3] ?? 0;
    header.flags = bytes[at + 4] ?? 0;
    header.id = bytes.readUInt32BE(at + 5) & MAX_STREAM_ID;
    this.#check(header);
    this.#receiver.frameBegins(header);
    this.#left = header.length;
    if (header.type === frameType.data) this.#beginData(header);
    else if (header.type >= KNOWN_TYPES) this.#stage = header.length === 0 ? 'header' : 'skip';
    else if (header.length === 0) this.#receiver.frame(header, NO_BYTES);
    else this.#stage = 'payload';
  }

  #check(header: FrameHeader): void {
    const { length, type } = header;
    if (length > this.#maxFrameSize) throw sizeFault(`a frame of ${length} bytes`);
    const fixed = FIXED_LENGTHS.get(type);
    if (fixed !== undefined && length !== fixed) {
      throw sizeFault(`a frame of type ${type} with ${length} bytes`);
    }
    if (type === frameType.settings) {
      if (length % 6 !== 0) throw sizeFault(`SETTINGS of ${length} bytes`);
      if (length > 6 * MAX_SETTINGS_PER_FRAME) throw tooMuch(`${length / 6} settings at once`);
    }
    if (type === frameType.goaway) {
      if (length < 8) throw sizeFault(`a GOAWAY of ${length} bytes`);
      if (length > MAX_GOAWAY_BYTES) throw tooMuch(`a GOAWAY of ${length} bytes`);
    }
    if (type === frameType.headers || type === frameType.continuation) {
      if (length > this.#maxBlock) throw tooMuch(`${length} bytes of headers in one frame`);
    }
    // The receiver judges the length of a short PRIORITY.
    if (type === frameType.priority && length > MAX_GOAWAY_BYTES) throw sizeFault('a PRIORITY');
  }

  #beginData(header: FrameHeader): void {
    this.#padding = 0;
    if ((header.flags & frameFlag.padded) !== 0) {
      if (header.length === 0) throw sizeFault('padded DATA without a pad length');
      this.#stage = 'pad-length';
    } else {
      this.#stage = 'content';
      if (header.length === 0) this.#endData();
    }
  }

  #readPadLength(chunk: Buffer, at: number): number {
    this.#padding = chunk[at] ?? 0;
    this.#left = this.#header.length - 1 - this.#padding;
    if (this.#left < 0) {
      throw fault('more padding than DATA');
    }
    this.#stage = 'content';
    if (this.#left === 0) this.#endContent();
    return at + 1;
  }

  #readContent(chunk: Buffer, at: number): number {
    const take = Math.min(this.#left, chunk.length - at);
    this.#left -= take;
    this.#receiver.data(at === 0 && take === chunk.length ? chunk : chunk.subarray(at, at + take));
    if (this.#left === 0) this.#endContent();
    return at + take;
  }

  #endContent(): void {
    if (this.#padding === 0) {
      this.#endData();
      return;
    }
    this.#left = this.#padding;
    this.#stage = 'skip';
  }

  #endData(): void {
    this.#stage = 'header';
    this.#receiver.dataEnds(this.#header);
  }

  /** Padding, or a frame of an unknown type. */
  #skip(chunk: Buffer, at: number): number {
    const take = Math.min(this.#left, chunk.length - at);
    this.#left -= take;
    if (this.#left === 0) {
      this.#stage = 'header';
      if (this.#header.type === frameType.data) this.#endData();
    }
    return at + take;
  }

  #readPayload(chunk: Buffer, at: number): number {
    const { length } = this.#header;
    if (this.#filled === 0 && chunk.length - at >= length) {
      this.#stage = 'header';
      this.#receiver.frame(this.#header, chunk.subarray(at, at + length));
      return at + length;
    }
    const partial = (this.#partial ??= Buffer.allocUnsafe(length));
    const copied = chunk.copy(partial, this.#filled, at);
    this.#filled += copied;
    if (this.#filled === length) {
      this.#partial = null;
      this.#filled = 0;
      this.#stage = 'header';
      this.#receiver.frame(this.#header, partial);
    }
    return at + copied;
  }
}

const NO_BYTES = Buffer.alloc(0);

function sizeFault(what: string): ConnectionFault {
  return fault(what, errorCode.frameSizeError);
}

function tooMuch(what: string): ConnectionFault {
  return fault(what, errorCode.enhanceYourCalm);
}
