import { MAX_REMEMBERED_STREAMS } from './limits.ts';

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
