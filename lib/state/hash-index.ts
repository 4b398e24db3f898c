import { randomInt } from 'node:crypto';

const FIRST_SLOTS = 1_024;
/** Share of the slots in use at which the index grows. */
const LOAD_MAX = 0.8;
const FREE = 0;
const DELETED = -1;

/**
 * Maps texts to ids without keeping the texts: it keeps a hash of 32 bits. The ids of a text are candidates; the caller compares them
 * with the text. A text and an id take ten bytes or more, where a map takes a hundred. Most texts must have one id: those of one text
 * are looked through one by one.
 */
export class HashIndex {
  /** A stranger who chooses the texts must not know which collide. */
  readonly #seed = randomInt(2 ** 32);
  #hashes = new Int32Array(FIRST_SLOTS);
  /** The id and 1, {@link FREE} or {@link DELETED}. */
  #ids = new Int32Array(FIRST_SLOTS);
  /** Slots that are not free. */
  #taken = 0;
  #size = 0;

  add(text: string, id: number): void {
    if (this.#taken >= this.#ids.length * LOAD_MAX) this.#rehash();
    this.#put(this.#hash(text), id + 1);
    this.#size += 1;
  }

  delete(text: string, id: number): void {
    for (const slot of this.#slots(this.#hash(text))) {
      if (this.#ids[slot] !== id + 1) continue;
      this.#ids[slot] = DELETED;
      this.#size -= 1;
      return;
    }
  }

  /** Yields the ids of the text, and with a little chance others. Do not change the index meanwhile. */
  *candidates(text: string): Generator<number> {
    for (const slot of this.#slots(this.#hash(text))) yield (this.#ids[slot] ?? 0) - 1;
  }

  /** Yields the slots with an id under the hash. */
  *#slots(hash: number): Generator<number> {
    const mask = this.#ids.length - 1;
    for (let slot = hash & mask; this.#ids[slot] !== FREE; slot = (slot + 1) & mask) {
      if (this.#hashes[slot] === hash && this.#ids[slot] !== DELETED) yield slot;
    }
  }

  #put(hash: number, entry: number): void {
    const mask = this.#ids.length - 1;
    let slot = hash & mask;
    while (this.#ids[slot] !== FREE) slot = (slot + 1) & mask;
    this.#hashes[slot] = hash;
    this.#ids[slot] = entry;
    this.#taken += 1;
  }

  /** Drops deleted entries, and doubles the slots when that is not enough. */
  #rehash(): void {
    const [hashes, ids] = [this.#hashes, this.#ids];
    const slots = this.#size >= (ids.length * LOAD_MAX) / 2 ? ids.length * 2 : ids.length;
    this.#hashes = new Int32Array(slots);
    this.#ids = new Int32Array(slots);
    this.#taken = 0;
    for (const [slot, entry] of ids.entries()) {
      if (entry !== FREE && entry !== DELETED) this.#put(hashes[slot] ?? 0, entry);
    }
  }

  /** FNV-1a, and a last mix because the low bits choose the slot. */
  #hash(text: string): number {
    let hash = this.#seed ^ 0x811c_9dc5;
    for (let at = 0; at < text.length; at += 1) {
      hash = Math.imul(hash ^ text.charCodeAt(at), 0x0100_0193);
    }
    hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b_3c6d);
    return hash ^ (hash >>> 13);
  }
}
