import { MAX_REMEMBERED_STREAMS } from './limits.ts';

/** How a stream ended: both sides were done, or one of them reset it. */
export type StreamEnd = 'done' | 'reset-by-peer' | 'reset-by-us';

/** The streams that ended last: what a late frame means depends on how its stream ended (RFC 9113 §5.1). */
export class EndedStreams {
  /** Oldest first. */
  readonly #ends = new Map<number, StreamEnd>();

  add(id: number, end: StreamEnd): void {
    this.#ends.set(id, end);
    if (this.#ends.size <= MAX_REMEMBERED_STREAMS) return;
    const [oldest] = this.#ends.keys();
    if (oldest !== undefined) this.#ends.delete(oldest);
  }

  get(id: number): StreamEnd | undefined {
    return this.#ends.get(id);
  }
}
