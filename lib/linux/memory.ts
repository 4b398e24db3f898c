import { callNative } from './native.ts';

/**
 * Gives back the pages of Node's binary and of libraries that this process has mapped and never changed, and returns how many
 * bytes they were. They stay in the page cache, and come back one by one when they are used. NATIVE_SYSCALL where
 * /proc/self/pagemap cannot be read; nothing is given back then.
 */
export function releaseProgramPages(): number {
  return callNative((native) => native.releaseProgramPages());
}

/** Gives the kernel back what is free in the heaps of malloc, of all threads. */
export function releaseFreeMemory(): void {
  callNative((native) => native.releaseFreeMemory());
}
