import type { X509Certificate } from 'node:crypto';
import { derElements, withoutLeadingZeros } from './asn1.ts';
import type { DerElement } from './asn1.ts';
import { MeshError } from '../errors/mesh-error.ts';

/** The encoded fields of a certificate that link it to its issuer's revocation lists. */
export interface CertificateFields {
  /** Without leading zeros. */
  readonly serial: Buffer;
  /** The issuer's name, DER. */
  readonly issuer: Buffer;
  /** Its own name, DER. */
  readonly subject: Buffer;
}

const SEQUENCE = 0x30;
const INTEGER = 0x02;
const VERSION = 0xa0;
const WHAT = 'the certificate';

/** Reads the fields. Throws IDENTITY_INVALID for malformed DER. */
export function certificateFields(certificate: X509Certificate): CertificateFields {
  const der = certificate.raw;
  const [outer] = derElements(der, 0, der.length, WHAT);
  const [signed] = children(der, outer);
  const fields = children(der, signed);
  if (fields[0]?.tag === VERSION) fields.shift();
  const [serial, , issuer, , subject] = fields;
  if (serial?.tag !== INTEGER || issuer?.tag !== SEQUENCE || subject?.tag !== SEQUENCE) {
    throw malformed();
  }
  return {
    serial: withoutLeadingZeros(der.subarray(serial.start, serial.end)),
    issuer: der.subarray(issuer.offset, issuer.end),
    subject: der.subarray(subject.offset, subject.end),
  };
}

function children(der: Buffer, element: DerElement | undefined): DerElement[] {
  if (element?.tag !== SEQUENCE) throw malformed();
  return [...derElements(der, element.start, element.end, WHAT)];
}

function malformed(): MeshError {
  return new MeshError('IDENTITY_INVALID', `${WHAT} is missing or malformed`);
}
