import type { X509Certificate } from 'node:crypto';
import { derElements } from './asn1.ts';
import type { DerElement } from './asn1.ts';
import { MeshError } from '../errors/mesh-error.ts';

/** The parts of a certificate that tie it to its issuer's revocation lists, as encoded. */
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

/** Reads them. Throws IDENTITY_INVALID for what is no certificate. */
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
    serial: canonicalSerial(der.subarray(serial.start, serial.end)),
    issuer: der.subarray(issuer.offset, issuer.end),
    subject: der.subarray(subject.offset, subject.end),
  };
}

/** A serial number's bytes without leading zeros, so that differently padded ones compare as equal. */
export function canonicalSerial(bytes: Buffer): Buffer {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start += 1;
  return bytes.subarray(start);
}

function children(der: Buffer, element: DerElement | undefined): DerElement[] {
  if (element?.tag !== SEQUENCE) throw malformed();
  return [...derElements(der, element.start, element.end, WHAT)];
}

function malformed(): MeshError {
  return new MeshError('IDENTITY_INVALID', `${WHAT} is missing or malformed`);
}
