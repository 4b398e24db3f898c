/** The tasks of the signing threads. */
import type { KeyObject } from 'node:crypto';
import type { WireError } from '../../../lib/errors/mesh-error.ts';
import type { AltName } from '../../../lib/identity/subject-alt-name.ts';

/** One certificate to issue. Times in milliseconds since the epoch. */
export interface SigningTask {
  readonly csrPem: string;
  readonly names: readonly AltName[];
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** PEM; threads keep what they read from it. */
  readonly issuerPem: string;
  readonly key: KeyObject;
}

/** The outcome: a certificate, or why there is none. Errors lose their code on the way between threads. */
export type SigningOutcome =
  | {
      readonly ok: true;
      readonly certificatePem: string;
      /** Hexadecimal. */
      readonly serial: string;
      /** As in the request's report; null when it has none. */
      readonly trustedRoots: readonly string[] | null;
    }
  | { readonly ok: false; readonly error: WireError };
