import type { Clock } from '../../../lib/clock/clock.ts';

/** Between the beginnings of two renderings: a scrape goes through every series of the process. */
export const PAGE_INTERVAL_MS = 1_000;

/**
 * A page that anyone may ask for as often as they like: it is made at most once a second, and all who ask meanwhile share the
 * next one. Nobody gets a page that was begun before they asked.
 */
export class PacedPage {
  readonly #render: () => Promise<string>;
  readonly #clock: Clock;
  /** The page that has not been begun. */
  #next: Promise<string> | null = null;
  /** Settles when the latest page that was begun is made. */
  #made: Promise<unknown> = Promise.resolve();
  #begunMs = -Infinity;

  constructor(render: () => Promise<string>, clock: Clock) {
    this.#render = render;
    this.#clock = clock;
  }

  /** The page as it is now or will be within a second; rejects with what making it threw. */
  text(): Promise<string> {
    this.#next ??= this.#make();
    return this.#next;
  }

  async #make(): Promise<string> {
    await this.#made;
    const waitMs = this.#begunMs + PAGE_INTERVAL_MS - this.#clock.monotonic();
    if (waitMs > 0) await this.#clock.sleep(waitMs);
    this.#next = null;
    this.#begunMs = this.#clock.monotonic();
    const page = this.#render();
    this.#made = Promise.allSettled([page]);
    return page;
  }
}
