/** Numbers of HTTP/2 and the bytes of the frames we send (RFC 9113 §4, §6, §7). */

/** Length of every frame's header. */
export const FRAME_HEADER_BYTES = 9;

/** The preface, which a client sends first. */
export const CLIENT_PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

/** Defaults and largest values of windows, frame sizes and ids. */
export const MAX_WINDOW = 0x7fff_ffff;
export const DEFAULT_WINDOW = 65_535;
export const DEFAULT_FRAME_SIZE = 16_384;
export const LARGEST_FRAME_SIZE = 16_777_215;
export const MAX_STREAM_ID = 0x7fff_ffff;

/** Frame types. */
export const frameType = {
  data: 0,
  headers: 1,
  priority: 2,
  rstStream: 3,
  settings: 4,
  pushPromise: 5,
  ping: 6,
  goaway: 7,
  windowUpdate: 8,
  continuation: 9,
} as const;

/** Flags; END_STREAM and ACK share a bit. */
export const frameFlag = {
  ack: 0x01,
  endStream: 0x01,
  endHeaders: 0x04,
  padded: 0x08,
  priority: 0x20,
} as const;

/** Error codes. */
export const errorCode = {
  noError: 0,
  protocolError: 1,
  internalError: 2,
  flowControlError: 3,
  settingsTimeout: 4,
  streamClosed: 5,
  frameSizeError: 6,
  refusedStream: 7,
  cancel: 8,
  compressionError: 9,
  connectError: 10,
  enhanceYourCalm: 11,
} as const;

/** Settings that this engine knows. */
export const settingId = {
  headerTableSize: 1,
  enablePush: 2,
  maxConcurrentStreams: 3,
  initialWindowSize: 4,
  maxFrameSize: 5,
  maxHeaderListSize: 6,
} as const;

/** A frame's header. */
export interface FrameHeader {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly length: number;
}

/** The peer broke the protocol in a way that ends the whole connection (RFC 9113 §5.4.1). */
export class ConnectionFault extends Error {
  override readonly name = 'ConnectionFault';
  /** One of {@link errorCode}. */
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** The fault of a peer that sent `what`. */
export function fault(what: string, code: number = errorCode.protocolError): ConnectionFault {
  return peerFault(code, `sent ${what}`);
}

/** The fault of a peer, told by a sentence about it. */
export function peerFault(code: number, what: string): ConnectionFault {
  return new ConnectionFault(code, `the peer ${what}`);
}

/** Writes a frame header at `at`. */
export function writeFrameHeader(
  into: Buffer,
  at: number,
  frame: { readonly type: number; readonly flags: number; readonly id: number },
  length: number,
): void {
  into[at] = length >>> 16;
  into[at + 1] = length >>> 8;
  into[at + 2] = length;
  into[at + 3] = frame.type;
  into[at + 4] = frame.flags;
  into.writeUInt32BE(frame.id, at + 5);
}

/** WINDOW_UPDATE; id 0 is the connection. */
export function windowUpdateFrame(id: number, increment: number): Buffer {
  const frame = fixedFrame(frameType.windowUpdate, 0, id, 4);
  frame.writeUInt32BE(increment, FRAME_HEADER_BYTES);
  return frame;
}

/** PING with eight bytes of `payload`. */
export function pingFrame(payload: Buffer, ack: boolean): Buffer {
  const frame = fixedFrame(frameType.ping, ack ? frameFlag.ack : 0, 0, 8);
  payload.copy(frame, FRAME_HEADER_BYTES, 0, 8);
  return frame;
}

/** GOAWAY without debug data. */
export function goawayFrame(lastId: number, code: number): Buffer {
  const frame = fixedFrame(frameType.goaway, 0, 0, 8);
  frame.writeUInt32BE(lastId, FRAME_HEADER_BYTES);
  frame.writeUInt32BE(code, FRAME_HEADER_BYTES + 4);
  return frame;
}

/** SETTINGS of pairs of {@link settingId} and value. */
export function settingsFrame(settings: readonly (readonly [id: number, value: number])[]): Buffer {
  const frame = fixedFrame(frameType.settings, 0, 0, 6 * settings.length);
  let at = FRAME_HEADER_BYTES;
  for (const [id, value] of settings) {
    frame.writeUInt16BE(id, at);
    frame.writeUInt32BE(value, at + 2);
    at += 6;
  }
  return frame;
}

/** The acknowledgement of the peer's SETTINGS. */
export function settingsAckFrame(): Buffer {
  return fixedFrame(frameType.settings, frameFlag.ack, 0, 0);
}

/** HEADERS in one frame, in place: the block stands behind {@link FRAME_HEADER_BYTES} bytes for the frame's header. */
export function headersFrame(id: number, bytes: Buffer, endStream: boolean): Buffer {
  const flags = frameFlag.endHeaders | (endStream ? frameFlag.endStream : 0);
  const { headers: type } = frameType;
  writeFrameHeader(bytes, 0, { type, flags, id }, bytes.length - FRAME_HEADER_BYTES);
  return bytes;
}

/** HEADERS, with CONTINUATIONs if the block is larger than one frame may be; all in one buffer. */
export function headersFrames(
  id: number,
  block: Buffer,
  options: { readonly endStream: boolean; readonly maxFrameSize: number },
): Buffer {
  const { maxFrameSize, endStream } = options;
  const frames = Math.max(1, Math.ceil(block.length / maxFrameSize));
  const bytes = Buffer.allocUnsafe(frames * FRAME_HEADER_BYTES + block.length);
  let at = 0;
  for (let index = 0; index < frames; index += 1) {
    const part = block.subarray(index * maxFrameSize, (index + 1) * maxFrameSize);
    const first = index === 0;
    const last = index === frames - 1;
    const type = first ? frameType.headers : frameType.continuation;
    const flags =
      (last ? frameFlag.endHeaders : 0) | (first && endStream ? frameFlag.endStream : 0);
    writeFrameHeader(bytes, at, { type, flags, id }, part.length);
    part.copy(bytes, at + FRAME_HEADER_BYTES);
    at += FRAME_HEADER_BYTES + part.length;
  }
  return bytes;
}

function fixedFrame(type: number, flags: number, id: number, length: number): Buffer {
  const frame = Buffer.allocUnsafe(FRAME_HEADER_BYTES + length);
  writeFrameHeader(frame, 0, { type, flags, id }, length);
  return frame;
}
