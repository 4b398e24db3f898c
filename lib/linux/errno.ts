import { MeshError } from '../errors/mesh-error.ts';

/** Errors of a kernel or namespace without IPv6. */
const WITHOUT_IPV6: ReadonlySet<string | null> = new Set(['EAFNOSUPPORT', 'EADDRNOTAVAIL']);

/** No descriptor left: of the process, of the machine. */
const EXHAUSTED: ReadonlySet<string | null> = new Set(['EMFILE', 'ENFILE']);

/** Whether a NATIVE_SYSCALL failed for want of a descriptor. */
export function isExhausted(error: unknown): boolean {
  return EXHAUSTED.has(errnoOf(error));
}

/** Whether a NATIVE_SYSCALL failed because there is no IPv6. */
export function lacksIpv6(error: unknown): boolean {
  return WITHOUT_IPV6.has(errnoOf(error));
}

/** The symbolic errno of a NATIVE_SYSCALL, e.g. `EPERM`; null for any other error. */
export function errnoOf(error: unknown): string | null {
  if (!(error instanceof MeshError) || error.code !== 'NATIVE_SYSCALL') return null;
  const errno = error.detail['errno'];
  return typeof errno === 'string' ? errno : null;
}
