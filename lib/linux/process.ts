import { callNative } from './native.ts';

/** Raises the soft limit of open files to the hard one. NATIVE_SYSCALL when the kernel refuses. */
export function raiseFileLimit(): { readonly soft: number; readonly hard: number } {
  return callNative((native) => native.raiseFileLimit());
}

/** The effective capabilities that the data path and the node agent stand on. */
export interface Capabilities {
  readonly netAdmin: boolean;
  readonly netRaw: boolean;
  readonly sysAdmin: boolean;
}

/** What the calling thread may do. */
export function capabilities(): Capabilities {
  return callNative((native) => native.capabilities());
}
