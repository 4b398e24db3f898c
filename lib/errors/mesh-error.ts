import { errorTable } from './codes.ts';
import type { ErrorCode, ErrorPolicy } from './codes.ts';

/** Plain facts that belong to an error; must survive JSON and structured clone. */
export type ErrorDetail = Readonly<Record<string, string | number | boolean | null>>;

/** A {@link MeshError} as plain data, for threads (structured clone drops `code`) and Redis. */
export interface WireError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly detail: ErrorDetail;
  readonly cause?: string;
}

/**
 * An expected failure: named by a stable code, explained to an operator by its message.
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

  /** What the table advises for this code. */
  get policy(): ErrorPolicy {
    return errorTable[this.code];
  }

  /** Plain form that survives threads and Redis; the cause is kept as text. */
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

/** The error as a {@link MeshError}: itself, or wrapped under `code` with `message` before its own text. */
export function asMeshError(error: unknown, code: ErrorCode, message?: string): MeshError {
  if (error instanceof MeshError) return error;
  const text = errorText(error);
  return new MeshError(code, message === undefined ? text : `${message}: ${text}`, {
    cause: error,
  });
}

/** One line that describes any thrown value. */
export function errorText(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof AggregateError && error.message === '') {
    return error.errors.map(errorText).join('; ');
  }
  return error.message === '' ? error.name : error.message;
}
