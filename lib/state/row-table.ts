import { assert } from '../errors/assert.ts';
import { ByteArena } from './byte-arena.ts';
import { HashIndex } from './hash-index.ts';

const FIRST_ROWS = 1_024;
/** The name is not part of the row's bytes, so it is kept behind them. */
const BEHIND = -1;

/** Encoded rows by name, each under a small integer. Most rows contain their name, which is not kept a second time then. */
export class RowTable {
  readonly #arena = new ByteArena();
  readonly #index = new HashIndex();
  /** For each id: where its name begins in its bytes, or {@link BEHIND}; and the length of the name, 0 for a free id. */
  #names = new Int32Array(2 * FIRST_ROWS);
  #size = 0;
  #ids = 0;

  get size(): number {
    return this.#size;
  }

  /** Bytes of the rows, used or not, without the index. */
  get allocatedBytes(): number {
    return this.#arena.allocatedBytes + this.#names.byteLength;
  }

  /** Keeps a copy of the bytes and returns their id. The name must be new, and not empty. */
  add(name: string, bytes: Uint8Array): number {
    const text = Buffer.from(name);
    assert(text.length > 0, 'a row has a name');
    const at = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).indexOf(text);
    const id = this.#arena.add(at === BEHIND ? Buffer.concat([bytes, text]) : bytes);
    if (2 * id >= this.#names.length) {
      const larger = new Int32Array(this.#names.length * 2);
      larger.set(this.#names);
      this.#names = larger;
    }
    this.#names[2 * id] = at;
    this.#names[2 * id + 1] = text.length;
    this.#index.add(name, id);
    this.#size += 1;
    this.#ids = Math.max(this.#ids, id + 1);
    return id;
  }

  /** Returns the id of the row with the name; undefined when there is none. */
  find(name: string): number | undefined {
    for (const id of this.#index.candidates(name)) if (this.name(id) === name) return id;
    return undefined;
  }

  /** Returns the bytes of a row, which are valid until the next change. */
  bytes(id: number): Uint8Array {
    const [at, length] = this.#place(id);
    const all = this.#arena.get(id);
    return at === BEHIND ? all.subarray(0, all.length - length) : all;
  }

  /** Returns the name of a row. */
  name(id: number): string {
    const [at, length] = this.#place(id);
    const all = this.#arena.get(id);
    const start = all.byteOffset + (at === BEHIND ? all.length - length : at);
    return Buffer.from(all.buffer, start, length).toString();
  }

  delete(id: number): void {
    this.#index.delete(this.name(id), id);
    this.#arena.free(id);
    this.#names[2 * id + 1] = 0;
    this.#size -= 1;
  }

  /** Yields the ids of all rows. Rows that are added meanwhile may be among them. */
  *ids(): Generator<number> {
    for (let id = 0; id < this.#ids; id += 1) if (this.#names[2 * id + 1] !== 0) yield id;
  }

  #place(id: number): readonly [at: number, length: number] {
    return [this.#names[2 * id] ?? BEHIND, this.#names[2 * id + 1] ?? 0];
  }
}
