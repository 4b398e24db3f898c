/** Locks between processes of a machine, which end with their holder. */
import { callNative } from './native.ts';

/** A held lock. The kernel frees it when the process ends in any way. */
export interface FileLock {
  /** Frees the lock. Call it once. */
  release(): void;
}

/**
 * Locks the file at `path` for one holder, and makes the file if it is missing. The file stays; nobody may remove it while a process
 * may want the lock. Returns null while another holder has it, in this process too. Throws NATIVE_SYSCALL when the file cannot be
 * opened.
 */
export function lockFile(path: string): FileLock | null {
  const fd = callNative((native) => native.lockFile(path));
  return fd === null ? null : { release: () => callNative((native) => native.closeFd(fd)) };
}
