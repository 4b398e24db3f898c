/** Sets of values by key. A key without values takes no memory, and most keys have a single value, kept without a set. */
export class MapOfSets<Value extends string | number> {
  readonly #values = new Map<string, Value | Set<Value>>();

  add(key: string, value: Value): void {
    const held = this.#values.get(key);
    if (held === undefined) this.#values.set(key, value);
    else if (held instanceof Set) held.add(value);
    else if (held !== value) this.#values.set(key, new Set([held, value]));
  }

  delete(key: string, value: Value): void {
    const held = this.#values.get(key);
    if (held === value) this.#values.delete(key);
    if (!(held instanceof Set)) return;
    held.delete(value);
    if (held.size === 0) this.#values.delete(key);
  }

  /** The values of a key, in the order they were added. */
  get(key: string): Iterable<Value> {
    const held = this.#values.get(key);
    if (held === undefined) return [];
    return held instanceof Set ? held : [held];
  }
}
