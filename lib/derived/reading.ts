import { assert } from '../errors/assert.ts';
import type { Watched } from './cell.ts';

/** A collection that computations read by key. */
export interface Readable<V> {
  readonly rank: number;
  read(reading: Reading, key: string): V | undefined;
}

/** An index that computations read by value. */
export interface ReadableIndex<V> {
  readonly rank: number;
  read(reading: Reading, value: string): readonly V[];
}

/** The context of one computation: fetches values, and records what was fetched. */
export class Reading {
  readonly #rank: number;
  /** Everything that was fetched. */
  readonly fetched = new Set<Watched>();

  constructor(rank: number) {
    this.#rank = rank;
  }

  /** The value of a key; undefined when there is none. The computation depends on the key either way. */
  get<V>(from: Readable<V>, key: string): V | undefined {
    this.#check(from);
    return from.read(this, key);
  }

  /** The values under a value of an index, in the order of their keys. */
  list<V>(from: ReadableIndex<V>, value: string): readonly V[] {
    this.#check(from);
    return from.read(this, value);
  }

  /** Records that the computation read this; collections call it. */
  note(watched: Watched): void {
    this.fetched.add(watched);
  }

  #check(from: { readonly rank: number }): void {
    assert(from.rank < this.#rank, 'a computation reads only collections made before its own');
  }
}
