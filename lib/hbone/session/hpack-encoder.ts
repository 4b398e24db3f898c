import { STATIC_TABLE } from './hpack-table.ts';

/** A header field: its name in lower case, and its value. */
export type FieldPair = readonly [name: string, value: string];

/**
 * Encodes header blocks without a dynamic table and without Huffman codes: a CONNECT has a few hundred bytes, comes once for each
 * connection, and differs each time. The first block sets the table size to 0, which satisfies any size the peer may set (RFC 7541
 * §4.2).
 */
export class HpackEncoder {
  #first = true;

  /**
   * Encodes fields, pseudo headers first, behind `room` bytes for the caller. A block is built as text of one character a byte, which is copied once: a
   * write of each part to a buffer costs twice as much.
   */
  encode(fields: readonly FieldPair[], room = 0): Buffer {
    let text = room === 0 ? '' : '\0'.repeat(room);
    if (this.#first) {
      this.#first = false;
      text += TABLE_SIZE_0;
    }
    for (const [name, value] of fields) text += fieldText(name, value);
    return Buffer.from(text, 'latin1');
  }
}

/** The character of each byte. */
const BYTES = Array.from({ length: 256 }, (_, byte) => String.fromCharCode(byte));
const TABLE_SIZE_0 = '\x20';
const NEW_NAME = '\0';
const INDEXED = { mark: 0x80, bits: 7 } as const;
/** A literal that is not added to the table. */
const LITERAL = { mark: 0, bits: 4 } as const;
const LENGTH = { mark: 0, bits: 7 } as const;

/** A name in the static table: its first index, and the indexes of its values. */
interface KnownName {
  readonly index: number;
  readonly values: Map<string, number>;
}

const knownNames = new Map<string, KnownName>();
for (const [index, { name, value }] of STATIC_TABLE.entries()) {
  const known = knownNames.get(name) ?? { index: index + 1, values: new Map<string, number>() };
  knownNames.set(name, known);
  if (value !== '') known.values.set(value, index + 1);
}

function fieldText(name: string, value: string): string {
  const known = knownNames.get(name);
  if (known === undefined) return NEW_NAME + lengthText(name) + name + lengthText(value) + value;
  const whole = known.values.get(value);
  if (whole !== undefined) return integerText(INDEXED, whole);
  return integerText(LITERAL, known.index) + lengthText(value) + value;
}

function lengthText(text: string): string {
  return integerText(LENGTH, text.length);
}

/** RFC 7541 §5.1 */
function integerText(
  prefix: { readonly mark: number; readonly bits: number },
  value: number,
): string {
  const mask = (1 << prefix.bits) - 1;
  if (value < mask) return byteText(prefix.mark | value);
  let text = byteText(prefix.mark | mask);
  let rest = value - mask;
  while (rest > 0x7f) {
    text += byteText((rest & 0x7f) | 0x80);
    rest >>>= 7;
  }
  return text + byteText(rest);
}

function byteText(byte: number): string {
  return BYTES[byte] ?? '';
}
