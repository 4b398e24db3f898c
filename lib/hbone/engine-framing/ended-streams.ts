import { MAX_REMEMBERED_STREAMS } from './limits.ts';

/** How a stream ended: both sides were done, or one of them reset it. */
export type StreamEnd = 'done' | 'reset-by-peer' | 'reset-by-us';

/**
 * The streams that ended last: what a late frame means depends on how its stream ended (RFC 9113 §5.1). Late frames are few: they
 * may search, so that an end costs two numbers.
 */
export class EndedStreams {
  readonly #ids: number[] = [];
  readonly #ends: StreamEnd[] = [];
  /** Where the next one goes: the oldest stands there once there are enough. */
  #next = 0;

  add(id: number, end: StreamEnd): void {
    this.#ids[this.#next] = id;
    this.#ends[this.#next] = end;
    this.#next = (this.#next + 1) % MAX_REMEMBERED_STREAMS;
  }

  /** The last word on a stream. */
  get(id: number): StreamEnd | undefined {
    const young = this.#next === 0 ? -1 : this.#ids.lastIndexOf(id, this.#next - 1);
    return this.#ends[young === -1 ? this.#ids.lastIndexOf(id) : young];
  }
}
