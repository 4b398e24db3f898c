import { errorCode, fault, frameFlag } from './frames.ts';
import type { FrameHeader } from './frames.ts';
import { MAX_CONTINUATIONS } from './limits.ts';

const PRIORITY_BYTES = 5;

/** A whole header block, still compressed. */
export interface HeaderBlock {
  readonly id: number;
  readonly endStream: boolean;
  /** Whether the stream depends on itself (RFC 7540 §5.3.1). */
  readonly selfDependent: boolean;
  readonly bytes: Buffer;
}

/** Joins HEADERS and its CONTINUATIONs (RFC 9113 §6.2, §6.10). No other frame may come between them. */
export class HeaderBlocks {
  readonly #maxBytes: number;
  #open: { id: number; endStream: boolean; selfDependent: boolean } | null = null;
  #parts: Buffer[] = [];
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Takes HEADERS; returns the block when it is complete. */
  headers({ id, flags }: FrameHeader, payload: Buffer): HeaderBlock | null {
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
        throw fault('HEADERS cut short', errorCode.frameSizeError);
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

  /** Takes a CONTINUATION of the open block; returns the block when it is complete. */
  continuation({ flags }: FrameHeader, payload: Buffer): HeaderBlock | null {
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
      throw fault('a header block without end', errorCode.enhanceYourCalm);
    }
    this.#parts.push(Buffer.from(part));
  }
}
