import type { DestinationStream } from 'pino';
import type { Clock, Timer } from '../clock/clock.ts';
import { Output } from '../linux/output.ts';
import {
  DROPPED_LINE_MS,
  GATHER_BYTES,
  GATHER_MS,
  MAX_GATHERED_BYTES,
  MAX_HELD_BYTES,
  RETRY_MS,
} from './limits.ts';

/** Where lines go that may wait for each other, and lines that may not. A line ends with a newline. */
export interface LineStream extends DestinationStream {
  /** Writes a line soon: after those before it, and with what comes next. */
  gather(line: string): void;
}

/**
 * Lines of a thread on their way to a descriptor. {@link write} goes out at once and takes along what was gathered before, so
 * that the order stays. A reader that is slow holds nobody up: lines are kept for it up to a bound and tried again, then
 * dropped and counted.
 */
export class LineOutput implements LineStream {
  /** Called with the number of lines dropped so far, when the reader takes lines again. */
  onDropped: (lines: number) => void = () => undefined;
  readonly #output: Output;
  readonly #clock: Clock;
  #timer: Timer | null = null;
  /** Until the next attempt while the reader takes no more; null while it does. */
  #retryMs: number | null = null;
  #dropped = 0;
  #told = { lines: 0, atMs: -Infinity };

  /** Writes to `fd`, which stays the caller's. NATIVE_SYSCALL when it is none. */
  constructor(fd: number, clock: Clock) {
    this.#output = new Output(fd);
    this.#clock = clock;
  }

  /** Lines that found no room. */
  get dropped(): number {
    return this.#dropped;
  }

  write(line: string): void {
    this.#hold(line, MAX_HELD_BYTES);
    this.flush();
  }

  gather(line: string): void {
    this.#hold(line, MAX_GATHERED_BYTES);
    if (this.#output.held >= GATHER_BYTES && this.#retryMs === null) this.flush();
    else this.#flushWithin(GATHER_MS);
  }

  /** Writes what was gathered, as much as is taken. */
  flush(): void {
    const { held } = this.#output;
    if (held === 0) return;
    this.#output.flush();
    if (this.#output.held > 0) {
      this.#retry(this.#output.held < held);
      return;
    }
    this.#retryMs = null;
    this.#tellDropped();
  }

  #hold(line: string, limitBytes: number): void {
    if (this.#output.held < limitBytes) this.#output.append(line);
    else this.#dropped += 1;
  }

  /** Soon where the reader took something, less often the longer it takes nothing. */
  #retry(progress: boolean): void {
    const again = progress || this.#retryMs === null;
    this.#retryMs = again ? RETRY_MS : Math.min(GATHER_MS, 2 * (this.#retryMs ?? RETRY_MS));
    this.#timer?.cancel();
    this.#timer = null;
    this.#flushWithin(this.#retryMs);
  }

  #flushWithin(delayMs: number): void {
    this.#timer ??= this.#clock.after(delayMs, () => {
      this.#timer = null;
      this.flush();
    });
  }

  #tellDropped(): void {
    if (this.#told.lines === this.#dropped) return;
    const nowMs = this.#clock.monotonic();
    if (nowMs - this.#told.atMs < DROPPED_LINE_MS) return;
    this.#told = { lines: this.#dropped, atMs: nowMs };
    this.onDropped(this.#dropped);
  }
}
