import { makePrefix, formatPrefix, prefixContains } from '../net/prefix.ts';
import type { Prefix } from '../net/prefix.ts';
import { tryParseIp } from '../net/address.ts';
import type { IpAddress } from '../net/address.ts';

const NONE: readonly number[] = Object.freeze([]);

/**
 * Maps texts to ids. Most texts have one id, which is stored without a container. An id may be added again to the same text before
 * another is; it is held once.
 */
export class IdIndex {
  /** Several ids are an array, which takes a quarter of the memory of a set. */
  readonly #ids = new Map<string, number | number[]>();

  add(text: string, id: number): void {
    const held = this.#ids.get(text);
    if (held === undefined) this.#ids.set(text, id);
    else if (typeof held !== 'number') {
      if (held.at(-1) !== id) held.push(id);
    } else if (held !== id) this.#ids.set(text, [held, id]);
  }

  delete(text: string, id: number): void {
    const held = this.#ids.get(text);
    if (held === id) this.#ids.delete(text);
    if (held === undefined || typeof held === 'number') return;
    const at = held.indexOf(id);
    const last = held.at(-1);
    if (at === -1 || last === undefined) return;
    held[at] = last;
    held.pop();
    if (held.length === 0) this.#ids.delete(text);
  }

  /** Returns ids in no particular order; do not keep the result across changes. */
  get(text: string): Iterable<number> {
    const held = this.#ids.get(text);
    if (held === undefined) return NONE;
    return typeof held === 'number' ? [held] : held;
  }
}

/** Maps ranges of a network to ids, which are found by any address inside. A search costs one probe for each prefix length in use. */
export class RangeIndex {
  readonly #ids = new IdIndex();
  /** Number of ranges of each length, by network; lengths of IPv6 have 1,000 added. */
  readonly #lengths = new Map<string, Map<number, number>>();

  add(network: string, range: Prefix, id: number): void {
    const lengths = this.#lengths.get(network) ?? new Map<number, number>();
    const code = lengthCode(range);
    lengths.set(code, (lengths.get(code) ?? 0) + 1);
    this.#lengths.set(network, lengths);
    this.#ids.add(rangeText(network, range), id);
  }

  delete(network: string, range: Prefix, id: number): void {
    const lengths = this.#lengths.get(network);
    const code = lengthCode(range);
    const left = (lengths?.get(code) ?? 1) - 1;
    if (left > 0) lengths?.set(code, left);
    else lengths?.delete(code);
    if (lengths?.size === 0) this.#lengths.delete(network);
    this.#ids.delete(rangeText(network, range), id);
  }

  *containing(network: string, ip: string): Generator<number> {
    const lengths = this.#lengths.get(network);
    const address = lengths === undefined ? null : tryParseIp(ip);
    if (lengths === undefined || address === null) return;
    for (const code of lengths.keys()) {
      const length = address.family === 6 ? code - 1_000 : code;
      if (length < 0 || length > address.bytes.length * 8) continue;
      yield* this.#ids.get(rangeText(network, makePrefix(address, length)));
    }
  }
}

function lengthCode(range: Prefix): number {
  return range.family === 6 ? range.length + 1_000 : range.length;
}

function rangeText(network: string, range: Prefix): string {
  return `${network}/${formatPrefix(range)}`;
}

/**
 * Remembers the addresses of lookups, so that a change of a range can name the answers that become stale. When there are too
 * many it forgets them all and says so; every answer is stale then.
 */
export class AskedAddresses {
  readonly #limit: number;
  readonly #networks = new Map<string, Map<string, IpAddress>>();
  #count = 0;
  #overflowed = false;

  constructor(limit: number) {
    this.#limit = limit;
  }

  ask(network: string, ip: string): void {
    const asked = this.#networks.get(network) ?? new Map<string, IpAddress>();
    if (asked.has(ip)) return;
    if (this.#count >= this.#limit) {
      this.#networks.clear();
      this.#count = 0;
      this.#overflowed = true;
      return;
    }
    const address = tryParseIp(ip);
    if (address === null) return;
    this.#networks.set(network, asked.set(ip, address));
    this.#count += 1;
  }

  /** Returns the remembered addresses inside the range. Null means that they were forgotten, and the caller must drop all answers. */
  inside(network: string, range: Prefix): readonly string[] | null {
    if (this.#overflowed) {
      this.#overflowed = false;
      this.#networks.clear();
      this.#count = 0;
      return null;
    }
    const found: string[] = [];
    for (const [ip, address] of this.#networks.get(network) ?? []) {
      if (prefixContains(range, address)) found.push(ip);
    }
    return found;
  }
}
