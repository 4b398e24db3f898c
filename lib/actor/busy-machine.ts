import type { ProcessorTimes } from '../linux/processors.ts';

/**
 * A machine whose processors idle for less than this share of the time is busy: all processes of a node collect the garbage of their
 * start at about the same time, which takes seconds from those that work.
 */
const BUSY_IDLE_SHARE = 0.7;
/** Longest wait for a busy machine, and up to half as long again: all that wait should not go on at once. */
const BUSY_WAIT_MS = 60_000;

/** Has work that can wait do so while the machine is busy. Where the processors' times cannot be read, nothing waits. */
export class BusyMachine {
  readonly #processors: () => ProcessorTimes | null;
  /** Looks further apart than this do not belong together. */
  readonly #farMs: number;
  readonly #longestMs = BUSY_WAIT_MS * (1 + Math.random() / 2);
  #sinceMs = -Infinity;
  #lookedMs = -Infinity;
  #last: ProcessorTimes | null = null;

  /** Work that is due asks every `checkMs`. */
  constructor(processors: () => ProcessorTimes | null, checkMs: number) {
    this.#processors = processors;
    this.#farMs = 2 * checkMs;
  }

  /** The begin of the present wait. */
  get sinceMs(): number {
    return this.#sinceMs;
  }

  /** Whether work that is due waits: for a second look at the machine, or because it is busy. */
  holdsUp(now: number): boolean {
    const apartMs = now - this.#lookedMs;
    // It was not due for long: this is another wait.
    if (apartMs > BUSY_WAIT_MS) this.#sinceMs = now;
    const before = apartMs > this.#farMs ? null : this.#last;
    const after = this.#processors();
    this.#lookedMs = now;
    this.#last = after;
    if (after === null || now - this.#sinceMs >= this.#longestMs) return false;
    if (before === null || after.all <= before.all) return true;
    return (after.idle - before.idle) / (after.all - before.all) < BUSY_IDLE_SHARE;
  }

  /** The work is under way: the next wait begins anew. */
  end(): void {
    this.#lookedMs = -Infinity;
  }
}
