import type { ResponseFlag } from '../../../lib/errors/codes.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';

/** How the kernel names its errors; those of OpenSSL and of certificates have other forms. */
const ERRNO = /^E[A-Z0-9]+$/;

/**
 * The `response_flags` of a connection that ended for `reason`, null when nothing failed (docs/spec/observability.md §2.1). What
 * has no flag of its own is CONNECT, and so is a handshake whose transport broke: only what TLS itself found wrong
 * is TLS_FAILURE.
 */
export function responseFlag(reason: MeshError | null): ResponseFlag {
  if (reason === null) return '-';
  if (reason.code === 'TLS_HANDSHAKE' && isTransportError(reason.cause)) return 'CONNECT';
  const { flag } = reason.policy;
  return flag === '-' ? 'CONNECT' : flag;
}

/** A peer that just closed leaves an error without a code. */
function isTransportError(cause: unknown): boolean {
  if (!(cause instanceof Error)) return false;
  const code: unknown = Reflect.get(cause, 'code');
  return code === undefined || (typeof code === 'string' && ERRNO.test(code));
}
