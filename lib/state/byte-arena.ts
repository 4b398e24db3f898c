import { present } from '../errors/assert.ts';
import { SLAB_BYTES } from './limits.ts';

interface Slab {
  readonly bytes: Uint8Array;
  used: number;
  live: number;
}

/**
 * Packs byte strings into large buffers (slabs), each under a small integer. An object for each string would cost more than
 * most strings. When a slab is mostly free, its live strings move to another one.
 */
export class ByteArena {
  readonly #slabBytes: number;
  readonly #slabs: (Slab | null)[] = [];
  readonly #freeSlabs: number[] = [];
  readonly #freeIds: number[] = [];
  /** Slab, offset and length of each id; slab -1 marks a free id. */
  #places = new Int32Array(3 * 1024);
  #ids = 0;
  #current = -1;

  constructor(slabBytes: number = SLAB_BYTES) {
    this.#slabBytes = slabBytes;
  }

  /** Bytes allocated, used or not. */
  get allocatedBytes(): number {
    let bytes = this.#places.byteLength;
    for (const slab of this.#slabs) bytes += slab?.bytes.length ?? 0;
    return bytes;
  }

  /** Copies the bytes and returns their id, which is valid until it is freed. Free ids are used again. */
  add(bytes: Uint8Array): number {
    const id = this.#freeIds.pop() ?? this.#newId();
    this.#write(id, bytes);
    return id;
  }

  /** Returns the bytes, which are valid until the next call of {@link add} or {@link free}. */
  get(id: number): Uint8Array {
    const slab = present(this.#slabs[this.#place(id, 0)], `bytes ${id} are held`);
    const offset = this.#place(id, 1);
    return slab.bytes.subarray(offset, offset + this.#place(id, 2));
  }

  /** Frees the id and its bytes. */
  free(id: number): void {
    const index = this.#place(id, 0);
    const slab = present(this.#slabs[index], `bytes ${id} are held`);
    slab.live -= this.#place(id, 2);
    this.#places[id * 3] = -1;
    this.#freeIds.push(id);
    if (index === this.#current) return;
    if (slab.live === 0) this.#dropSlab(index);
    else if (slab.live * 2 < slab.used) this.#evacuate(index);
  }

  #newId(): number {
    const id = this.#ids;
    this.#ids += 1;
    if (this.#ids * 3 > this.#places.length) {
      const larger = new Int32Array(this.#places.length * 2);
      larger.set(this.#places);
      this.#places = larger;
    }
    return id;
  }

  #write(id: number, bytes: Uint8Array): void {
    const index = this.#slabFor(bytes.length);
    const slab = present(this.#slabs[index], 'a slab has room');
    slab.bytes.set(bytes, slab.used);
    this.#places[id * 3] = index;
    this.#places[id * 3 + 1] = slab.used;
    this.#places[id * 3 + 2] = bytes.length;
    slab.used += bytes.length;
    slab.live += bytes.length;
  }

  #slabFor(length: number): number {
    const current = this.#slabs[this.#current];
    if (current && current.used + length <= current.bytes.length) return this.#current;
    const index = this.#freeSlabs.pop() ?? this.#slabs.length;
    const bytes = new Uint8Array(Math.max(length, this.#slabBytes));
    this.#slabs[index] = { bytes, used: 0, live: 0 };
    // A string larger than a slab gets a slab of its own; the current slab stays in use.
    if (length <= this.#slabBytes) {
      const before = this.#current;
      this.#current = index;
      if (this.#slabs[before]?.live === 0) this.#dropSlab(before);
    }
    return index;
  }

  #evacuate(index: number): void {
    const slab = present(this.#slabs[index], 'a slab to evacuate');
    for (let id = 0; id < this.#ids; id += 1) {
      if (this.#place(id, 0) !== index) continue;
      const offset = this.#place(id, 1);
      this.#write(id, slab.bytes.subarray(offset, offset + this.#place(id, 2)));
    }
    this.#dropSlab(index);
  }

  #dropSlab(index: number): void {
    this.#slabs[index] = null;
    this.#freeSlabs.push(index);
  }

  #place(id: number, column: 0 | 1 | 2): number {
    return this.#places[id * 3 + column] ?? -1;
  }
}
