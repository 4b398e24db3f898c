import { X509Certificate } from 'node:crypto';
import {
  bitString,
  context,
  fromDer,
  integer,
  sequence,
  sequenceOf,
  time,
  toDer,
} from '../../lib/identity/asn1.ts';
import type { Asn1 } from '../../lib/identity/asn1.ts';
import { certificateFields } from '../../lib/identity/certificate-fields.ts';
import { toPem } from '../../lib/identity/csr.ts';
import { signerFor } from '../../lib/identity/signature.ts';
import { extension } from '../../lib/identity/subject-alt-name.ts';
import type { Issuer } from '../../lib/identity/x509.ts';

const HOUR_MS = 3_600_000;

/** The contents of a list. */
export interface CrlRequest {
  /** Certificates (PEM; the first block counts) or serial numbers. */
  readonly revoked: readonly (string | Buffer)[];
  readonly thisUpdateMs?: number;
  /** Null leaves it out. */
  readonly nextUpdateMs?: number | null;
  readonly extensions?: readonly Asn1[];
  readonly entryExtensions?: readonly Asn1[];
  /** Sign with another key than the issuer's. */
  readonly signWith?: Issuer;
}

/** A list of the issuer, DER. */
export async function issueCrl(issuer: Issuer, request: CrlRequest): Promise<Buffer> {
  const now = Date.now();
  const signer = signerFor((request.signWith ?? issuer).key);
  const { subject } = certificateFields(issuer.certificate);
  const nextUpdateMs = request.nextUpdateMs === undefined ? now + HOUR_MS : request.nextUpdateMs;
  const entries = request.revoked.map((item) =>
    sequence(
      integer(typeof item === 'string' ? serialOf(item) : item),
      time(now - HOUR_MS),
      ...(request.entryExtensions === undefined ? [] : [sequence(...request.entryExtensions)]),
    ),
  );
  const signed = sequence(
    integer(Buffer.of(1)),
    signer.algorithm,
    sequence(...sequenceOf(fromDer(subject, 'the issuer'), 'the issuer')),
    time(request.thisUpdateMs ?? now - HOUR_MS),
    ...(nextUpdateMs === null ? [] : [time(nextUpdateMs)]),
    ...(entries.length === 0 ? [] : [sequence(...entries)]),
    context(
      0,
      sequence(...(request.extensions ?? [extension('2.5.29.20', false, integer(Buffer.of(1)))])),
    ),
  );
  const signature = await signer.sign(toDer(signed));
  return toDer(sequence(signed, signer.algorithm, bitString(signature)));
}

/** The same as a PEM block. */
export async function issueCrlPem(issuer: Issuer, request: CrlRequest): Promise<string> {
  return toPem('X509 CRL', await issueCrl(issuer, request));
}

/** The serial number of a certificate. */
export function serialOf(pem: string): Buffer {
  return certificateFields(new X509Certificate(pem)).serial;
}
