/**
 * The open streams of a connection, found by id. They are opened in the order of their ids (RFC 9113 §5.1.1), so that a list is
 * enough. A `Map` as busy keeps V8 from freeing what stood in it, see lib/collections/roster.ts.
 */
export class LiveStreams<Stream extends { readonly id: number }> {
  readonly #streams: Stream[] = [];

  get size(): number {
    return this.#streams.length;
  }

  /** Takes in a stream whose id is above all others. */
  add(stream: Stream): void {
    this.#streams.push(stream);
  }

  get(id: number): Stream | undefined {
    const stream = this.#streams[this.#indexOf(id)];
    return stream?.id === id ? stream : undefined;
  }

  /** Without effect where no such stream is open. */
  delete(id: number): void {
    const index = this.#indexOf(id);
    if (this.#streams[index]?.id === id) this.#streams.splice(index, 1);
  }

  /** Takes all of them out. */
  clear(): Stream[] {
    return this.#streams.splice(0);
  }

  /** Those of this moment; they may end meanwhile. */
  [Symbol.iterator](): ArrayIterator<Stream> {
    return this.#streams.slice().values();
  }

  /** Where the stream is, or the first with a higher id. */
  #indexOf(id: number): number {
    let from = 0;
    let to = this.#streams.length;
    while (from < to) {
      const middle = (from + to) >>> 1;
      const stream = this.#streams[middle];
      if (stream !== undefined && stream.id < id) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
