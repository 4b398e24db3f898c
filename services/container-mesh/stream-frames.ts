/** The engine's way of carrying two outputs in one stream: a kind, three zeroes, a length, and as many bytes. */

const HEADER_BYTES = 8;
const LENGTH_AT = 4;

/** A piece of output: kind 1 is standard output, 2 standard error. */
export interface OutputPiece {
  readonly kind: number;
  readonly bytes: Buffer;
}

/** Takes the stream apart; a frame is handed on as it comes, so nothing but a header is ever kept. */
export class FrameSplitter {
  #header: Buffer = Buffer.alloc(0);
  #kind = 1;
  #left = 0;

  /** The pieces in this chunk. */
  push(chunk: Buffer): OutputPiece[] {
    const pieces: OutputPiece[] = [];
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#left === 0) {
        const missing = HEADER_BYTES - this.#header.length;
        this.#header = Buffer.concat([this.#header, rest.subarray(0, missing)]);
        rest = rest.subarray(missing);
        if (this.#header.length < HEADER_BYTES) break;
        this.#kind = this.#header.readUInt8(0);
        this.#left = this.#header.readUInt32BE(LENGTH_AT);
        this.#header = Buffer.alloc(0);
        continue;
      }
      const bytes = rest.subarray(0, this.#left);
      pieces.push({ kind: this.#kind, bytes });
      this.#left -= bytes.length;
      rest = rest.subarray(bytes.length);
    }
    return pieces;
  }
}
