import { callNative } from './native.ts';
import type { OutputHandle } from './native.ts';

/**
 * Writes text to a descriptor without waiting for its reader. Text that the reader does not take is held. A pipe takes lines of
 * at most 4 KiB as a whole, so that lines of other writers cannot tear them. When the thread ends, except by a signal to the
 * process, the held text is written, for at most half a second.
 */
export class Output {
  readonly #handle: OutputHandle;
  #held = 0;

  /** Writes to a duplicate of `fd`. Throws NATIVE_SYSCALL for a bad descriptor. */
  constructor(fd: number) {
    this.#handle = callNative((native) => native.outputOpen(fd));
  }

  /** Bytes that are not written yet. */
  get held(): number {
    return this.#held;
  }

  /** Holds the text for the next {@link flush}. The caller bounds it. */
  append(text: string): void {
    this.#held = callNative((native) => native.outputAppend(this.#handle, text));
  }

  /** Writes as much as the reader takes at once. */
  flush(): void {
    this.#held = callNative((native) => native.outputFlush(this.#handle));
  }
}
