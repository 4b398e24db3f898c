import { ConnectionFault, errorCode } from './frames.ts';
import { decodeHuffman } from './huffman.ts';
import { DynamicTable, STATIC_TABLE, fieldSize } from './hpack-table.ts';
import type { Field } from './hpack-table.ts';

/** A decoded header list. */
export interface FieldList {
  readonly fields: readonly Field[];
  /** Whether the list was larger than allowed. `fields` then ends at the limit. */
  readonly oversized: boolean;
}

/** The largest integer accepted; no length, index or size is above it. */
const MAX_INTEGER = 0x0fff_ffff;

const NO_BYTES = Buffer.alloc(0);

/**
 * Decodes the header blocks of one connection in order (RFC 7541). Every block must pass through the decoder, even an unwanted one, or
 * the tables of the two ends diverge. Throws {@link ConnectionFault} COMPRESSION_ERROR.
 */
export class HpackDecoder {
  readonly #table: DynamicTable;
  readonly #maxTable: number;
  readonly #maxList: number;
  readonly #repeats: boolean;
  /** The last block that depends on no table and changes none, and its list. */
  #last: { readonly block: Buffer; readonly list: FieldList } | null = null;
  #block: Buffer = NO_BYTES;
  #at = 0;
  /** Whether the block so far has neither read nor changed the dynamic table. */
  #isAlone = true;

  /**
   * `maxTableBytes` as announced by SETTINGS_HEADER_TABLE_SIZE, `maxListBytes` as RFC 9113 §6.5.2 counts. With `repeats` a block is expected to equal the
   * one before it, as the answers of one peer do; it then gives the same list, as the same object.
   */
  constructor(maxTableBytes: number, maxListBytes: number, repeats = false) {
    this.#table = new DynamicTable(maxTableBytes);
    this.#maxTable = maxTableBytes;
    this.#maxList = maxListBytes;
    this.#repeats = repeats;
  }

  decode(block: Buffer): FieldList {
    if (!this.#repeats) return this.#decode(block);
    if (this.#last?.block.equals(block) === true) return this.#last.list;
    const list = this.#decode(block);
    if (this.#isAlone) this.#last = { block: Buffer.from(block), list };
    return list;
  }

  #decode(block: Buffer): FieldList {
    this.#isAlone = true;
    this.#block = block;
    this.#at = 0;
    const fields: Field[] = [];
    let size = 0;
    let oversized = false;
    this.#sizeUpdates();
    while (this.#at < block.length) {
      const field = this.#field();
      size += fieldSize(field);
      oversized ||= size > this.#maxList;
      if (!oversized) fields.push(field);
    }
    this.#block = NO_BYTES;
    return { fields, oversized };
  }

  /** Size updates stand at the beginning of a block or nowhere (§4.2). */
  #sizeUpdates(): void {
    while (this.#at < this.#block.length && (this.#peek() & 0xe0) === 0x20) {
      const size = this.#integer(5);
      if (size > this.#maxTable) throw fault('a table size above the one allowed');
      this.#isAlone = false;
      this.#table.resize(size);
    }
  }

  #field(): Field {
    const first = this.#peek();
    if ((first & 0x80) !== 0) return this.#entry(this.#integer(7));
    if ((first & 0x40) !== 0) {
      const field = this.#literal(6);
      this.#isAlone = false;
      this.#table.add(field);
      return field;
    }
    if ((first & 0x20) !== 0) throw fault('a table size update in the middle of a block');
    return this.#literal(4);
  }

  #literal(prefixBits: number): Field {
    const index = this.#integer(prefixBits);
    const name = index === 0 ? this.#text() : this.#entry(index).name;
    return { name, value: this.#text() };
  }

  #entry(index: number): Field {
    if (index === 0) throw fault('index 0');
    if (index > STATIC_TABLE.length) this.#isAlone = false;
    const entry =
      index <= STATIC_TABLE.length
        ? STATIC_TABLE[index - 1]
        : this.#table.at(index - STATIC_TABLE.length - 1);
    if (entry === undefined) throw fault(`index ${index} is not in the table`);
    return entry;
  }

  #text(): string {
    const isHuffman = (this.#peek() & 0x80) !== 0;
    const length = this.#integer(7);
    const from = this.#at;
    const to = from + length;
    if (to > this.#block.length) throw fault('a text longer than its block');
    this.#at = to;
    if (!isHuffman) return this.#block.toString('latin1', from, to);
    const text = decodeHuffman(this.#block, from, to);
    if (text === null) throw fault('a wrong Huffman code');
    return text;
  }

  /** §5.1 */
  #integer(prefixBits: number): number {
    const mask = (1 << prefixBits) - 1;
    let value = this.#peek() & mask;
    this.#at += 1;
    if (value < mask) return value;
    for (let shift = 0; ; shift += 7) {
      const byte = this.#peek();
      this.#at += 1;
      // Four bytes of seven bits are enough for what is allowed; more could overflow.
      if (shift > 21) throw fault('a number too large');
      value += (byte & 0x7f) << shift;
      if (value > MAX_INTEGER) throw fault('a number too large');
      if ((byte & 0x80) === 0) return value;
    }
  }

  #peek(): number {
    const byte = this.#block[this.#at];
    if (byte === undefined) throw fault('the block ends inside a field');
    return byte;
  }
}

function fault(what: string): ConnectionFault {
  return new ConnectionFault(errorCode.compressionError, `header compression: ${what}`);
}
