import type { Clock } from '../../../lib/clock/clock.ts';

/** Time between the beginnings of two renderings: a scrape goes through every series of the process. */
export const PAGE_INTERVAL_MS = 1_000;

/**
 * Makes a page at most once a second, however often it is requested. All requests in between share the next page. No request
 * gets a page that was begun before it came.
 */
export class PacedPage {
  readonly #render: () => Promise<string>;
  readonly #clock: Clock;
  /** The next page, which has not been begun. */
  #next: Promise<string> | null = null;
  /** Settles when the page that was begun last is made. */
  #made: Promise<unknown> = Promise.resolve();
  #begunMs = -Infinity;

  constructor(render: () => Promise<string>, clock: Clock) {
    this.#render = render;
    this.#clock = clock;
  }

  /** Returns the next page, at most a second later. Rejects as `render` does. */
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
