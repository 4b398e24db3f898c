import { callNative } from './native.ts';
import type { OutputHandle } from './native.ts';

/**
 * Text on its way to a descriptor, which is written to from elsewhere too. Nothing waits for who reads it: what is not taken
 * stays held, in lines that a pipe takes as a whole where they have at most 4 KiB. When the thread ends, by whatever but a
 * signal to the process, what is held is written, for half a second at most.
 */
export class Output {
  readonly #handle: OutputHandle;
  #held = 0;

  /** Writes to a descriptor of its own of the same file. NATIVE_SYSCALL when `fd` is none. */
  constructor(fd: number) {
    this.#handle = callNative((native) => native.outputOpen(fd));
  }

  /** Bytes that are not written yet. */
  get held(): number {
    return this.#held;
  }

  /** Holds the text, to be written by the next {@link flush}. Without a bound of its own. */
  append(text: string): void {
    this.#held = callNative((native) => native.outputAppend(this.#handle, text));
  }

  /** Writes what is taken at once. */
  flush(): void {
    this.#held = callNative((native) => native.outputFlush(this.#handle));
  }
}
