import { errorTable } from './codes.ts';
import type { ErrorCode, ErrorPolicy } from './codes.ts';

/** Plain facts of an error; they survive JSON and structured clone. */
export type ErrorDetail = Readonly<Record<string, string | number | boolean | null>>;

/** A {@link MeshError} as plain data, for threads (structured clone drops `code`) and Redis. */
export interface WireError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly detail: ErrorDetail;
  readonly cause?: string;
}

/**
 * An expected failure. Its code is stable, its message explains it to an operator.
 * Branch on `code`, never on `message`.
 */
export class MeshError extends Error {
  override readonly name = 'MeshError';
  readonly code: ErrorCode;
  readonly detail: ErrorDetail;

  constructor(
    code: ErrorCode,
    message: string,
    options: { cause?: unknown; detail?: ErrorDetail } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.detail = options.detail ?? {};
  }

  /** The advice of the table for this code. */
  get policy(): ErrorPolicy {
    return errorTable[this.code];
  }

  /** Returns a plain form for threads and Redis; the cause becomes text. */
  toWire(): WireError {
    const cause = this.cause === undefined ? {} : { cause: errorText(this.cause) };
    return { code: this.code, message: this.message, detail: this.detail, ...cause };
  }

  /** The inverse of {@link toWire}. */
  static fromWire(wire: WireError): MeshError {
    const cause = wire.cause === undefined ? {} : { cause: new Error(wire.cause) };
    return new MeshError(wire.code, wire.message, { detail: wire.detail, ...cause });
  }
}

/** Returns the error as a {@link MeshError}: itself, or wrapped under `code` with `message` before its own text. */
export function asMeshError(error: unknown, code: ErrorCode, message?: string): MeshError {
  if (error instanceof MeshError) return error;
  const text = errorText(error);
  return new MeshError(code, message === undefined ? text : `${message}: ${text}`, {
    cause: error,
  });
}

/** Returns one line that describes any thrown value. */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(errorText).join('; ');
  }
  return error.message === '' ? error.name : error.message;
}
