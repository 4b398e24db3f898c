import type { StreamCounts } from '../../linux/carry.ts';
import { isOrdinaryEnd } from '../../net/bidi-copy.ts';
import type { Copy, CopyCounts, CopyResult, CopySide } from '../../net/bidi-copy.ts';
import { errorCode } from '../session/frames.ts';
import type { StreamOver } from '../session/resets.ts';
import type { CarriedStream, StreamWatcher } from './carried-stream.ts';

/** The join of a stream with a socket, which a native thread performs. It ends as lib/net/bidi-copy.ts says. */
export class CarriedCopy implements Copy, StreamWatcher {
  readonly done: Promise<CopyResult>;
  readonly #stream: CarriedStream;
  readonly #socketIs: CopySide;
  readonly #resolve: (result: CopyResult) => void;
  #last: CopyCounts = { fromA: 0, fromB: 0 };

  /** `start` joins the stream with the socket, and has the copy watch it. Without it the copy has ended already. */
  constructor(
    stream: CarriedStream,
    socketIs: CopySide,
    start: ((watcher: StreamWatcher) => void) | null,
  ) {
    this.#stream = stream;
    this.#socketIs = socketIs;
    const { promise, resolve } = Promise.withResolvers<CopyResult>();
    this.done = promise;
    this.#resolve = resolve;
    if (start === null) resolve({ error: null });
    else start(this);
  }

  get counts(): Readonly<CopyCounts> {
    const now = this.#stream.counts;
    if (now !== null) this.#last = this.#sides(now);
    return this.#last;
  }

  abort(): void {
    this.#stream.reset(errorCode.internalError);
  }

  onClosed({ error }: StreamOver, counts: StreamCounts): void {
    this.#last = this.#sides(counts);
    // After what else this turn has brought: the next connection waits for it, and nobody for the account of this one.
    setImmediate(this.#resolve, { error: error === null || isOrdinaryEnd(error) ? null : error });
  }

  #sides(counts: StreamCounts): CopyCounts {
    const { fromSocket, fromStream, firstFromSocketMs, firstFromStreamMs } = counts;
    const isA = this.#socketIs === 'a';
    const firstFromBMs = isA ? firstFromStreamMs : firstFromSocketMs;
    const fromA = isA ? fromSocket : fromStream;
    const fromB = isA ? fromStream : fromSocket;
    return firstFromBMs === undefined ? { fromA, fromB } : { fromA, fromB, firstFromBMs };
  }
}
