import { STATIC_TABLE } from './hpack-table.ts';

/**
 * Encodes header blocks without a dynamic table and without Huffman codes: a CONNECT has a few hundred bytes, comes once for each
 * connection, and differs each time. The first block sets the table size to 0, which satisfies any size the peer may set (RFC 7541
 * §4.2).
 */
export class HpackEncoder {
  #first = true;

  /** Encodes fields: names in lower case and their values, pseudo headers first. */
  encode(fields: readonly (readonly [name: string, value: string])[]): Buffer {
    let size = 1;
    for (const [name, value] of fields) size += name.length + value.length + MAX_PREFIXES;
    const block = Buffer.allocUnsafe(size);
    let at = 0;
    if (this.#first) {
      this.#first = false;
      block[at] = TABLE_SIZE_0;
      at += 1;
    }
    for (const [name, value] of fields) at = writeField(block, at, name, value);
    return block.subarray(0, at);
  }
}

const TABLE_SIZE_0 = 0x20;
const INDEXED = 0x80;
/** Three numbers of at most five bytes: index, name's length, value's length. */
const MAX_PREFIXES = 15;

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

function writeField(block: Buffer, from: number, name: string, value: string): number {
  const known = knownNames.get(name);
  const whole = known?.values.get(value);
  if (whole !== undefined) return writeInteger(block, from, { mark: INDEXED, bits: 7 }, whole);
  let at = writeInteger(block, from, { mark: 0, bits: 4 }, known?.index ?? 0);
  if (known === undefined) at = writeText(block, at, name);
  return writeText(block, at, value);
}

function writeText(block: Buffer, from: number, text: string): number {
  const at = writeInteger(block, from, { mark: 0, bits: 7 }, text.length);
  return at + block.write(text, at, 'latin1');
}

function writeInteger(
  block: Buffer,
  from: number,
  prefix: { readonly mark: number; readonly bits: number },
  value: number,
): number {
  const mask = (1 << prefix.bits) - 1;
  if (value < mask) {
    block[from] = prefix.mark | value;
    return from + 1;
  }
  block[from] = prefix.mark | mask;
  let rest = value - mask;
  let at = from + 1;
  while (rest > 0x7f) {
    block[at] = (rest & 0x7f) | 0x80;
    rest >>>= 7;
    at += 1;
  }
  block[at] = rest;
  return at + 1;
}
