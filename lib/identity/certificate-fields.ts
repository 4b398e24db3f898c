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

/** The limits that an authority's certificate sets to what lies below it (RFC 5280 §4.2.1.9, §4.2.1.10). */
export interface AuthorityLimits {
  /** Most authorities that may lie between it and a leaf; null: any number. */
  readonly pathLength: number | null;
  /** Whether it limits names. */
  readonly limitsNames: boolean;
}

const SEQUENCE = 0x30;
const BOOLEAN = 0x01;
const EXTENSIONS = 0xa3;
const BASIC_CONSTRAINTS = Buffer.from('551d13', 'hex');
const NAME_CONSTRAINTS = Buffer.from('551d1e', 'hex');
/** Any length from here on is none: no path is that long. */
const LONG_PATH = 255;
const INTEGER = 0x02;
const VERSION = 0xa0;
const WHAT = 'the certificate';

/** Reads the fields. Throws IDENTITY_INVALID for malformed DER. */
export function certificateFields(certificate: X509Certificate): CertificateFields {
  const der = certificate.raw;
  const fields = signedFields(der);
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

/** Reads the limits of an authority. Throws IDENTITY_INVALID for malformed DER. */
export function authorityLimits(certificate: X509Certificate): AuthorityLimits {
  const der = certificate.raw;
  const wrapper = signedFields(der).find(({ tag }) => tag === EXTENSIONS);
  let pathLength: number | null = null;
  let limitsNames = false;
  if (wrapper === undefined) return { pathLength, limitsNames };
  const [list] = derElements(der, wrapper.start, wrapper.end, WHAT);
  for (const extension of children(der, list)) {
    const parts = children(der, extension);
    const [id, value] = [parts[0], parts.at(-1)];
    if (id === undefined || value === undefined) throw malformed();
    const oid = der.subarray(id.start, id.end);
    if (oid.equals(NAME_CONSTRAINTS)) limitsNames = true;
    if (oid.equals(BASIC_CONSTRAINTS)) pathLength = pathLengthOf(der, value);
  }
  return { pathLength, limitsNames };
}

function pathLengthOf(der: Buffer, value: DerElement): number | null {
  const [constraints] = derElements(der, value.start, value.end, WHAT);
  const length = children(der, constraints).find(({ tag }) => tag !== BOOLEAN);
  if (length === undefined) return null;
  if (length.tag !== INTEGER) throw malformed();
  const bytes = withoutLeadingZeros(der.subarray(length.start, length.end));
  return bytes.length === 1 ? (bytes[0] ?? 0) : LONG_PATH;
}

function signedFields(der: Buffer): DerElement[] {
  const [outer] = derElements(der, 0, der.length, WHAT);
  const [signed] = children(der, outer);
  return children(der, signed);
}

function children(der: Buffer, element: DerElement | undefined): DerElement[] {
  if (element?.tag !== SEQUENCE) throw malformed();
  return [...derElements(der, element.start, element.end, WHAT)];
}

function malformed(): MeshError {
  return new MeshError('IDENTITY_INVALID', `${WHAT} is missing or malformed`);
}
