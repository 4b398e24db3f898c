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

/** Takes lines that may be written together, and lines that are written at once. A line ends with a newline. */
export interface LineStream extends DestinationStream {
  /** Writes a line soon, after the lines before it and together with the next ones. */
  gather(line: string): void;
}

/**
 * Writes the lines of a thread to a descriptor. {@link write} writes at once, after the lines that were gathered before, so that
 * the order stays. A slow reader does not hold up the thread: lines are kept up to a bound and tried again; more are dropped
 * and counted.
 */
export class LineOutput implements LineStream {
  /** Called with the number of lines dropped so far when the reader takes lines again. */
  onDropped: (lines: number) => void = () => undefined;
  readonly #output: Output;
  readonly #clock: Clock;
  #timer: Timer | null = null;
  /** The next attempt, while the reader takes nothing; null otherwise. */
  #retryMs: number | null = null;
  #dropped = 0;
  #told = { lines: 0, atMs: -Infinity };

  /** Writes to `fd`, which the caller still owns. Throws NATIVE_SYSCALL for a bad descriptor. */
  constructor(fd: number, clock: Clock) {
    this.#output = new Output(fd);
    this.#clock = clock;
  }

  /** Lines that were dropped. */
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

  /** Writes as many of the gathered lines as the reader takes. */
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

  /** Schedules the next attempt: soon when the reader took something, ever later while it takes nothing. */
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
