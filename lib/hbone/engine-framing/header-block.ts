import { ConnectionFault, errorCode, frameFlag, frameType } from './frames.ts';
import type { FrameHeader } from './frame-parser.ts';
import { MAX_CONTINUATIONS } from './limits.ts';

const PRIORITY_BYTES = 5;

/** A whole header block, still compressed. */
export interface HeaderBlock {
  readonly id: number;
  readonly endStream: boolean;
  /** The stream was made to depend on itself (RFC 7540 §5.3.1). */
  readonly selfDependent: boolean;
  readonly bytes: Buffer;
}

/** Puts HEADERS and its CONTINUATIONs together (RFC 9113 §6.2, §6.10); nothing may come between them. */
export class HeaderBlocks {
  readonly #maxBytes: number;
  #open: { id: number; endStream: boolean; selfDependent: boolean } | null = null;
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Throws when a frame other than the expected CONTINUATION begins, or a CONTINUATION that nobody expects. */
  check(type: number, id: number): void {
    const isContinuation = type === frameType.continuation;
    if (this.#open === null ? isContinuation : !isContinuation || id !== this.#open.id) {
      throw fault(
        isContinuation ? 'CONTINUATION without its HEADERS' : 'a frame inside of a header block',
      );
    }
  }

  /** Takes HEADERS; the block when it is whole. */
  headers({ id, flags }: Readonly<FrameHeader>, payload: Buffer): HeaderBlock | null {
    if (id === 0) throw fault('HEADERS without a stream');
    let from = 0;
    let to = payload.length;
    if ((flags & frameFlag.padded) !== 0) {
      to -= payload[0] ?? 0;
      from = 1;
    }
    let selfDependent = false;
    if ((flags & frameFlag.priority) !== 0) {
      if (payload.length - from < PRIORITY_BYTES) {
        throw new ConnectionFault(errorCode.frameSizeError, 'the peer sent HEADERS cut short');
      }
      selfDependent = (payload.readUInt32BE(from) & 0x7fff_ffff) === id;
      from += PRIORITY_BYTES;
    }
    if (from > to) throw fault('more padding than HEADERS');
    const head = { id, endStream: (flags & frameFlag.endStream) !== 0, selfDependent };
    const bytes = payload.subarray(from, to);
    if ((flags & frameFlag.endHeaders) !== 0) return { ...head, bytes };
    this.#open = head;
    this.#add(bytes);
    return null;
  }

  /** Takes CONTINUATION, which {@link check} has let through; the block when it is whole. */
  continuation({ flags }: Readonly<FrameHeader>, payload: Buffer): HeaderBlock | null {
    const open = this.#open;
    if (open === null) return null;
    this.#add(payload);
    if ((flags & frameFlag.endHeaders) === 0) return null;
    const bytes = Buffer.concat(this.#parts);
    this.#open = null;
    this.#parts = [];
    this.#bytes = 0;
    return { ...open, bytes };
  }

  #add(part: Buffer): void {
    this.#bytes += part.length;
    if (this.#bytes > this.#maxBytes || this.#parts.length > MAX_CONTINUATIONS) {
      throw new ConnectionFault(
        errorCode.enhanceYourCalm,
        'the peer sent a header block without end',
      );
    }
    this.#parts.push(Buffer.from(part));
  }
}

function fault(what: string): ConnectionFault {
  return new ConnectionFault(errorCode.protocolError, `the peer sent ${what}`);
}
