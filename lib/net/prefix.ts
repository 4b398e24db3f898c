/** CIDR ranges. A range holds addresses of its own family only: an IPv4-mapped range never holds an IPv4 address. Host bits are ignored. */
import { MeshError } from '../errors/mesh-error.ts';
import { formatIp, parseIp } from './address.ts';
import type { IpAddress } from './address.ts';

/** A range of addresses; `bytes` has its host bits cleared. */
export interface Prefix extends IpAddress {
  /** Leading bits that count; 0 is the whole family. */
  readonly length: number;
}

/** Parses `10.0.0.0/8` or `fd00::/16`; a bare address is a range of one address. Throws ADDRESS_INVALID. */
export function parsePrefix(text: string): Prefix {
  const slash = text.indexOf('/');
  if (slash === -1) {
    const address = parseIp(text);
    return makePrefix(address, address.bytes.length * 8);
  }
  const lengthText = text.slice(slash + 1);
  if (!/^(0|[1-9]\d{0,2})$/.test(lengthText)) {
    throw new MeshError('ADDRESS_INVALID', `not a CIDR range: ${JSON.stringify(text)}`);
  }
  return makePrefix(parseIp(text.slice(0, slash)), Number(lengthText));
}

/** Like {@link parsePrefix}, but null for what is no range. */
export function tryParsePrefix(text: string): Prefix | null {
  try {
    return parsePrefix(text);
  } catch {
    // The caller leaves it out or names it.
    return null;
  }
}

/** The range of `length` bits that holds `address`. Throws ADDRESS_INVALID when the family has fewer bits. */
export function makePrefix(address: IpAddress, length: number): Prefix {
  const bits = address.bytes.length * 8;
  if (!Number.isInteger(length) || length < 0 || length > bits) {
    throw new MeshError(
      'ADDRESS_INVALID',
      `prefix length must be 0 to ${bits} for ${formatIp(address.bytes)}, got ${length}`,
    );
  }
  const bytes = Uint8Array.from(address.bytes);
  for (let index = 0; index < bytes.length; index += 1) {
    const kept = Math.min(8, Math.max(0, length - index * 8));
    bytes[index] = (bytes[index] ?? 0) & (0xff << (8 - kept));
  }
  return { family: address.family, bytes, length };
}

/** `10.0.0.0/8`. */
export function formatPrefix(prefix: Prefix): string {
  return `${formatIp(prefix.bytes)}/${prefix.length}`;
}

/** True when the range holds the address; false across families. */
export function prefixContains(prefix: Prefix, address: IpAddress): boolean {
  if (prefix.family !== address.family) return false;
  const whole = prefix.length >> 3;
  for (let index = 0; index < whole; index += 1) {
    if (prefix.bytes[index] !== address.bytes[index]) return false;
  }
  const rest = prefix.length & 7;
  if (rest === 0) return true;
  const mask = 0xff << (8 - rest);
  return (((prefix.bytes[whole] ?? 0) ^ (address.bytes[whole] ?? 0)) & mask & 0xff) === 0;
}

/**
 * Tells in logarithmic time whether any range of a set holds an address. Two ranges either nest or are disjoint. With nested ones
 * dropped, only the last range that starts at or before the address can hold it.
 */
export class PrefixSet {
  readonly #v4: readonly Prefix[];
  readonly #v6: readonly Prefix[];

  constructor(prefixes: Iterable<Prefix>) {
    const all = [...prefixes];
    this.#v4 = outermost(all.filter((prefix) => prefix.family === 4));
    this.#v6 = outermost(all.filter((prefix) => prefix.family === 6));
  }

  /** True when a range of the address's family holds it. */
  contains(address: IpAddress): boolean {
    const ranges = address.family === 4 ? this.#v4 : this.#v6;
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const range = ranges[middle];
      if (range !== undefined && compareBytes(range.bytes, address.bytes) <= 0) low = middle + 1;
      else high = middle;
    }
    const candidate = ranges[low - 1];
    return candidate !== undefined && prefixContains(candidate, address);
  }
}

function outermost(prefixes: readonly Prefix[]): Prefix[] {
  const sorted = prefixes.toSorted(
    (left, right) => compareBytes(left.bytes, right.bytes) || left.length - right.length,
  );
  const kept: Prefix[] = [];
  for (const prefix of sorted) {
    const last = kept.at(-1);
    if (last === undefined || !prefixContains(last, prefix)) kept.push(prefix);
  }
  return kept;
}

function compareBytes(left: Uint8Array, right: Uint8Array): number {
  for (let index = 0; index < left.length; index += 1) {
    const difference = (left[index] ?? 0) - (right[index] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
