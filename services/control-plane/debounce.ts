import type { Clock, Timer } from '../../lib/clock/clock.ts';

/** How long reports are gathered, in milliseconds. */
export interface DebounceOptions {
  /** The run starts when nothing was reported for this long. */
  readonly quietMs: number;
  /** The run starts at the latest this long after the first report. */
  readonly maxMs: number;
}

/**
 * Gathers reports into runs (docs/spec/istiod-ambient.md §0, PILOT_DEBOUNCE_*). Runs follow one another: what is reported
 * during a run is gathered for the next.
 */
export class Debounce {
  readonly #options: DebounceOptions;
  readonly #clock: Clock;
  readonly #run: (waitedMs: number) => Promise<void>;
  #timer: Timer | null = null;
  #firstMs: number | null = null;
  #lastMs = 0;
  #running = false;

  /** `run` never rejects. */
  constructor(options: DebounceOptions, clock: Clock, run: (waitedMs: number) => Promise<void>) {
    this.#options = options;
    this.#clock = clock;
    this.#run = run;
  }

  /** Notes that something happened. */
  report(): void {
    const now = this.#clock.monotonic();
    this.#lastMs = now;
    this.#firstMs ??= now;
    // A running timer checks the times again when it fires, so one timer serves any number of reports.
    this.#timer ??= this.#schedule(Math.min(this.#options.quietMs, this.#options.maxMs));
  }

  /** Drops the gathered reports. */
  stop(): void {
    this.#timer?.cancel();
    this.#timer = null;
    this.#firstMs = null;
  }

  #schedule(delayMs: number): Timer {
    return this.#clock.after(delayMs, () => this.#look());
  }

  #look(): void {
    const first = this.#firstMs;
    this.#timer?.cancel();
    this.#timer = null;
    if (first === null || this.#running) return;
    const now = this.#clock.monotonic();
    const due = Math.min(this.#lastMs + this.#options.quietMs, first + this.#options.maxMs);
    if (now < due) {
      this.#timer = this.#schedule(Math.ceil(due - now));
      return;
    }
    this.#firstMs = null;
    void this.#runOnce(now - first);
  }

  async #runOnce(waitedMs: number): Promise<void> {
    this.#running = true;
    await this.#run(waitedMs);
    this.#running = false;
    this.#look();
  }
}
