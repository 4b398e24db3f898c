import { monitorEventLoopDelay } from 'node:perf_hooks';

const NS_PER_SECOND = 1e9;

/**
 * Measures each turn of the event loop of the thread that creates it. It needs no timer, which would wake an idle thread, and
 * misses no turn.
 */
export class LoopTurns {
  readonly #histogram = monitorEventLoopDelay({ samplePerIteration: true });

  constructor() {
    this.#histogram.enable();
  }

  /**
   * Returns how long the longest turn since the last call was, seconds; zero when there was none. So late was, at most, an
   * event that arrived meanwhile.
   */
  longest(): number {
    const { count, max } = this.#histogram;
    this.#histogram.reset();
    return count === 0 ? 0 : max / NS_PER_SECOND;
  }
}
