/** Failures of the API server as {@link MeshError}s. */
import * as z from 'zod';
import type { ErrorCode } from '../errors/codes.ts';
import { MeshError } from '../errors/mesh-error.ts';

/** The part of a `Status` object that is read. */
const statusSchema = z.looseObject({
  kind: z.literal('Status'),
  message: z.string().optional(),
  reason: z.string().optional(),
  code: z.number().optional(),
});

const MAX_MESSAGE_CHARACTERS = 1_000;

/**
 * Returns the error of a failed request: KUBERNETES_NOT_FOUND (404), KUBERNETES_CONFLICT (409), KUBERNETES_EXPIRED (410),
 * KUBERNETES_REFUSED (401, 403), KUBERNETES_UNAVAILABLE (429, 5xx), KUBERNETES_INVALID (others). `what` names the request. The
 * detail holds `status`, and `reason` where the server told one.
 */
export function statusError(what: string, httpStatus: number, body: unknown): MeshError {
  const parsed = statusSchema.safeParse(body);
  const status = parsed.success ? (parsed.data.code ?? httpStatus) : httpStatus;
  const text = (parsed.success ? parsed.data.message : undefined) ?? `HTTP status ${httpStatus}`;
  return new MeshError(codeOf(status), `${what}: ${text.slice(0, MAX_MESSAGE_CHARACTERS)}`, {
    detail: { status, reason: (parsed.success ? parsed.data.reason : undefined) ?? null },
  });
}

function codeOf(status: number): ErrorCode {
  switch (status) {
    case 401:
    case 403:
      return 'KUBERNETES_REFUSED';
    case 404:
      return 'KUBERNETES_NOT_FOUND';
    case 409:
      return 'KUBERNETES_CONFLICT';
    case 410:
      return 'KUBERNETES_EXPIRED';
    case 408:
    case 429:
      return 'KUBERNETES_UNAVAILABLE';
    default:
      return status >= 500 ? 'KUBERNETES_UNAVAILABLE' : 'KUBERNETES_INVALID';
  }
}

/** Returns true for a {@link MeshError} of that code. */
export function isCode(error: unknown, ...codes: readonly ErrorCode[]): error is MeshError {
  return error instanceof MeshError && codes.includes(error.code);
}

/** Settles like `request`, with null where the API server does not have the object. */
export async function ifPresent<T>(request: Promise<T>): Promise<T | null> {
  try {
    return await request;
  } catch (error) {
    if (isCode(error, 'KUBERNETES_NOT_FOUND')) return null;
    throw error;
  }
}
