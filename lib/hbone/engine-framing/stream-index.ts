import { MAX_REMEMBERED_STREAMS } from './limits.ts';

/**
 * The open streams of a connection, found by id. Streams open in the order of their ids (RFC 9113 §5.1.1), so a sorted list suffices. A
 * `Map` with as many changes keeps V8 from freeing its former entries, see lib/collections/roster.ts.
 */
export class LiveStreams<Stream extends { readonly id: number }> {
  readonly #streams: Stream[] = [];

  get size(): number {
    return this.#streams.length;
  }

  /** Adds a stream whose id is above all others. */
  add(stream: Stream): void {
    this.#streams.push(stream);
  }

  get(id: number): Stream | undefined {
    const stream = this.#streams[this.#indexOf(id)];
    return stream?.id === id ? stream : undefined;
  }

  /** Removes a stream; has no effect if it is not open. */
  delete(id: number): void {
    const index = this.#indexOf(id);
    if (this.#streams[index]?.id === id) this.#streams.splice(index, 1);
  }

  /** Removes and returns all streams. */
  clear(): Stream[] {
    return this.#streams.splice(0);
  }

  /** Iterates over a copy, since streams may end meanwhile. */
  [Symbol.iterator](): ArrayIterator<Stream> {
    return this.#streams.slice().values();
  }

  /** The index of the stream, or of the first with a higher id. */
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

/** The way a stream ended: both sides were done, or one of them reset it. */
export type StreamEnd = 'done' | 'reset-by-peer' | 'reset-by-us';

/**
 * Remembers the streams that ended last. The meaning of a late frame depends on the end of its stream (RFC 9113 §5.1). Late frames are
 * rare, so they search a list, and an end costs only two numbers.
 */
export class EndedStreams {
  readonly #ids: number[] = [];
  readonly #ends: StreamEnd[] = [];
  /** The place of the next end. A full list has the oldest there. */
  #next = 0;

  add(id: number, end: StreamEnd): void {
    this.#ids[this.#next] = id;
    this.#ends[this.#next] = end;
    this.#next = (this.#next + 1) % MAX_REMEMBERED_STREAMS;
  }

  /** The last end recorded for a stream. */
  get(id: number): StreamEnd | undefined {
    const young = this.#next === 0 ? -1 : this.#ids.lastIndexOf(id, this.#next - 1);
    return this.#ends[young === -1 ? this.#ids.lastIndexOf(id) : young];
  }
}
