import { awaitNative, callNative } from './native.ts';

/** Raises the soft limit of open files to the hard one. Throws NATIVE_SYSCALL when the kernel refuses. */
export function raiseFileLimit(): { readonly soft: number; readonly hard: number } {
  return callNative((native) => native.raiseFileLimit());
}

/** The effective capabilities that the data path and the node agent need. */
export interface Capabilities {
  readonly netAdmin: boolean;
  readonly netRaw: boolean;
  readonly sysAdmin: boolean;
}

/** Returns the capabilities of the calling thread. */
export function capabilities(): Capabilities {
  return callNative((native) => native.capabilities());
}

/**
 * Drops the pages of the Node binary and of libraries that this process has mapped and never changed, and returns their bytes.
 * They stay in the page cache and are mapped again one by one when they are used. A pool thread does it. Rejects with
 * NATIVE_SYSCALL where /proc/self/pagemap cannot be read; then nothing is dropped.
 */
export async function releaseProgramPages(): Promise<number> {
  return awaitNative((native) => native.releaseProgramPages());
}

/** Begins a collection of the calling thread's garbage in small steps beside the program, and returns at once. */
export function collectInSteps(): void {
  callNative((native) => native.collectInSteps());
}

/**
 * Has V8 collect the calling thread's old garbage when the heap has grown by a third, and not by its fourfold. Fits a thread that
 * makes much garbage and keeps little: a whole collection of a small heap is short.
 */
export function saveMemory(): void {
  callNative((native) => native.saveMemory());
}

/** Returns free memory in malloc's heaps of all threads to the kernel. A pool thread does it. */
export async function releaseFreeMemory(): Promise<void> {
  await awaitNative((native) => native.releaseFreeMemory());
}
