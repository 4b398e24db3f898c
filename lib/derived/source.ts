import { Keyed } from './keyed.ts';

/** Values that come from outside. */
export class Source<V> extends Keyed<V> {
  readonly #values = new Map<string, V>();

  get size(): number {
    return this.#values.size;
  }

  get(key: string): V | undefined {
    return this.#values.get(key);
  }

  /** The keys, in the order they were set first. */
  keys(): Iterable<string> {
    return this.#values.keys();
  }

  /** Replaces a value; undefined removes it. The same value again changes nothing. */
  set(key: string, value: V | undefined): void {
    const before = this.#values.get(key);
    if (before === value) return;
    if (value === undefined) this.#values.delete(key);
    else this.#values.set(key, value);
    this.tell(key, before, value);
  }
}
