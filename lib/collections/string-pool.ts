/**
 * Gives equal texts one copy. Parsed JSON holds a copy of each value, and a hundred thousand pods repeat a few
 * namespaces, nodes and labels. The pool forgets all texts when it is full; copies it gave out stay shared.
 */
export class StringPool {
  readonly #limit: number;
  readonly #texts = new Map<string, string>();

  /** `limit` is the most texts it remembers. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** The shared copy of a text. */
  share(text: string): string {
    const known = this.#texts.get(text);
    if (known !== undefined) return known;
    if (this.#texts.size >= this.#limit) this.#texts.clear();
    this.#texts.set(text, text);
    return text;
  }
}
