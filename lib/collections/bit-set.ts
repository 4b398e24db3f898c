/** Words are added in blocks of this many, so that a growing set is copied rarely. */
const BLOCK_WORDS = 64;
const WORD_BITS = 32;

/** A set of small integers, in one bit each. An empty set costs nothing. */
export class BitSet {
  #words = new Uint32Array(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has(index: number): boolean {
    return ((this.#words[index >>> 5] ?? 0) & (1 << (index & 31))) !== 0;
  }

  /** Returns false when the set had it. */
  add(index: number): boolean {
    if (this.has(index)) return false;
    const word = index >>> 5;
    this.#hold(word + 1);
    this.#words[word] = (this.#words[word] ?? 0) | (1 << (index & 31));
    this.#size += 1;
    return true;
  }

  /** Returns false when the set did not have it. */
  delete(index: number): boolean {
    if (!this.has(index)) return false;
    const word = index >>> 5;
    this.#words[word] = (this.#words[word] ?? 0) & ~(1 << (index & 31));
    this.#shrunk(this.#size - 1);
    return true;
  }

  addAll(other: BitSet): void {
    this.#hold(other.#words.length);
    let added = 0;
    for (let word = 0; word < other.#words.length; word += 1) {
      const mine = this.#words[word] ?? 0;
      const fresh = (other.#words[word] ?? 0) & ~mine;
      if (fresh === 0) continue;
      added += ones(fresh);
      this.#words[word] = mine | fresh;
    }
    this.#size += added;
  }

  /** Adds the elements that two other sets have in common. */
  addCommon(left: BitSet, right: BitSet): void {
    const length = Math.min(left.#words.length, right.#words.length);
    let added = 0;
    for (let word = 0; word < length; word += 1) {
      const common = (left.#words[word] ?? 0) & (right.#words[word] ?? 0);
      const fresh = common & ~(this.#words[word] ?? 0);
      if (fresh === 0) continue;
      this.#hold(word + 1);
      this.#words[word] = (this.#words[word] ?? 0) | fresh;
      added += ones(fresh);
    }
    this.#size += added;
  }

  deleteAll(other: BitSet): void {
    const length = Math.min(this.#words.length, other.#words.length);
    let gone = 0;
    for (let word = 0; word < length; word += 1) {
      const mine = this.#words[word] ?? 0;
      const common = mine & (other.#words[word] ?? 0);
      if (common === 0) continue;
      gone += ones(common);
      this.#words[word] = mine & ~common;
    }
    this.#shrunk(this.#size - gone);
  }

  clear(): void {
    this.#shrunk(0);
  }

  /** Returns true when both sets have an element in common. */
  meets(other: BitSet): boolean {
    const length = Math.min(this.#words.length, other.#words.length);
    for (let word = 0; word < length; word += 1) {
      if (((this.#words[word] ?? 0) & (other.#words[word] ?? 0)) !== 0) return true;
    }
    return false;
  }

  /** Returns true when both sets have the same elements from `from` to `to`, both included. */
  sameWithin(other: BitSet, from: number, to: number): boolean {
    const last = to >>> 5;
    for (let word = from >>> 5; word <= last; word += 1) {
      let differing = (this.#words[word] ?? 0) ^ (other.#words[word] ?? 0);
      if (word === from >>> 5) differing &= -1 << (from & 31);
      if (word === last) differing &= -1 >>> (31 - (to & 31));
      if (differing !== 0) return false;
    }
    return true;
  }

  /** Returns the least element that is not below `from`; -1 without one. */
  next(from: number): number {
    let word = from >>> 5;
    let bits = (this.#words[word] ?? 0) & (-1 << (from & 31));
    while (bits === 0) {
      word += 1;
      if (word >= this.#words.length) return -1;
      bits = this.#words[word] ?? 0;
    }
    return word * WORD_BITS + 31 - Math.clz32(bits & -bits);
  }

  /** Goes through the elements in order. They may be deleted meanwhile. */
  *[Symbol.iterator](): Generator<number> {
    for (let index = this.next(0); index !== -1; index = this.next(index + 1)) yield index;
  }

  #hold(words: number): void {
    if (words <= this.#words.length) return;
    const grown = new Uint32Array(Math.ceil(words / BLOCK_WORDS) * BLOCK_WORDS);
    grown.set(this.#words);
    this.#words = grown;
  }

  #shrunk(size: number): void {
    this.#size = size;
    if (size === 0 && this.#words.length > 0) this.#words = new Uint32Array(0);
  }
}

function ones(word: number): number {
  let bits = word - ((word >>> 1) & 0x55555555);
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333);
  return (((bits + (bits >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
}
