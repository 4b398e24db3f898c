import { MeshError } from '../errors/mesh-error.ts';

/** Errors of a kernel or namespace without IPv6. */
const WITHOUT_IPV6: ReadonlySet<string | null> = new Set(['EAFNOSUPPORT', 'EADDRNOTAVAIL']);

/** Errors of a process or machine without a free descriptor. */
const EXHAUSTED: ReadonlySet<string | null> = new Set(['EMFILE', 'ENFILE']);

/** Returns whether a NATIVE_SYSCALL failed because no descriptor was free. */
export function isExhausted(error: unknown): boolean {
  return EXHAUSTED.has(errnoOf(error));
}

/** Returns whether a NATIVE_SYSCALL failed because there is no IPv6. */
export function lacksIpv6(error: unknown): boolean {
  return WITHOUT_IPV6.has(errnoOf(error));
}

/** Returns the symbolic errno of a NATIVE_SYSCALL, e.g. `EPERM`; null for any other error. */
export function errnoOf(error: unknown): string | null {
  if (!(error instanceof MeshError) || error.code !== 'NATIVE_SYSCALL') return null;
  const errno = error.detail['errno'];
  return typeof errno === 'string' ? errno : null;
}
