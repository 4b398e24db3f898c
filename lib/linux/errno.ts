import { MeshError } from '../errors/mesh-error.ts';

/** The symbolic errno of a NATIVE_SYSCALL, e.g. `EPERM`; null for any other error. */
export function errnoOf(error: unknown): string | null {
  if (!(error instanceof MeshError) || error.code !== 'NATIVE_SYSCALL') return null;
  const errno = error.detail['errno'];
  return typeof errno === 'string' ? errno : null;
}
