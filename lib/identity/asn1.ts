/** Functions over node-forge's ASN.1 for certificates and signing requests; bytes are Buffers. */
import type forge from 'node-forge';
// The package's entry would also load its ciphers, TLS and RSA: four megabytes in every thread.
import asn1 from 'node-forge/lib/asn1.js';
import util from 'node-forge/lib/util.js';
import { MeshError, errorText } from '../errors/mesh-error.ts';

const { Class, Type } = asn1;

/** The published types lack this form with options. */
const parse = asn1.fromDer as unknown as (
  der: string,
  options: { strict: boolean; parseAllBytes: boolean; decodeBitStrings: boolean },
) => forge.asn1.Asn1;

/** A node of an ASN.1 tree. */
export type Asn1 = forge.asn1.Asn1;

/** SEQUENCE. */
export function sequence(...children: Asn1[]): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.SEQUENCE, true, children);
}

/** SET. */
export function set(...children: Asn1[]): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.SET, true, children);
}

/** OBJECT IDENTIFIER from its dotted form. */
export function oid(dotted: string): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.OID, false, asn1.oidToDer(dotted).getBytes());
}

/** INTEGER of a non-negative big-endian number. */
export function integer(bytes: Uint8Array): Asn1 {
  const trimmed = withoutLeadingZeros(bytes);
  // A set top bit would make it negative.
  const padded = (trimmed[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.of(0), trimmed]) : trimmed;
  return asn1.create(Class.UNIVERSAL, Type.INTEGER, false, binary(padded));
}

/** The bytes without leading zeros; a number has at least one byte. */
export function withoutLeadingZeros<Bytes extends Uint8Array>(bytes: Bytes): Bytes {
  let start = 0;
  while (start < bytes.length - 1 && bytes[start] === 0) start += 1;
  return bytes.subarray(start) as Bytes;
}

/** BOOLEAN TRUE; DER leaves a default FALSE out. */
export function booleanTrue(): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.BOOLEAN, false, '\xff');
}

/** NULL. */
export function nullValue(): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.NULL, false, '');
}

/** OCTET STRING. */
export function octetString(bytes: Uint8Array): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.OCTETSTRING, false, binary(bytes));
}

/** BIT STRING with `unused` bits at its end. */
export function bitString(bytes: Uint8Array, unused = 0): Asn1 {
  const content = String.fromCharCode(unused) + binary(bytes);
  return asn1.create(Class.UNIVERSAL, Type.BITSTRING, false, content);
}

/** UTF8String. */
export function utf8String(text: string): Asn1 {
  return asn1.create(Class.UNIVERSAL, Type.UTF8, false, util.encodeUtf8(text));
}

/** A context-specific element that holds others. */
export function context(tag: number, ...children: Asn1[]): Asn1 {
  return asn1.create(Class.CONTEXT_SPECIFIC, tag, true, children);
}

/** A context-specific element that holds bytes. */
export function contextBytes(tag: number, bytes: Uint8Array): Asn1 {
  return asn1.create(Class.CONTEXT_SPECIFIC, tag, false, binary(bytes));
}

/** The last moment of UTCTime, which has two digits for the year (RFC 5280 §4.1.2.5). */
const UTC_TIME_END_MS = Date.UTC(2050, 0, 1);

/** A time in the form of certificates, to the second. */
export function time(ms: number): Asn1 {
  const date = new Date(Math.floor(ms / 1000) * 1000);
  return ms < UTC_TIME_END_MS
    ? asn1.create(Class.UNIVERSAL, Type.UTCTIME, false, asn1.dateToUtcTime(date))
    : asn1.create(Class.UNIVERSAL, Type.GENERALIZEDTIME, false, asn1.dateToGeneralizedTime(date));
}

/** DER bytes of a tree. */
export function toDer(node: Asn1): Buffer {
  return Buffer.from(asn1.toDer(node).getBytes(), 'latin1');
}

/** Parses DER bytes; bit and octet strings stay bytes. Throws IDENTITY_INVALID naming `what`. */
export function fromDer(der: Uint8Array, what: string): Asn1 {
  try {
    return parse(binary(der), {
      strict: true,
      parseAllBytes: true,
      decodeBitStrings: false,
    });
  } catch (error) {
    throw new MeshError('IDENTITY_INVALID', `${what} is not valid DER: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** The members of a SEQUENCE. Throws IDENTITY_INVALID naming `what` for anything else. */
export function sequenceOf(node: Asn1 | undefined, what: string): Asn1[] {
  return members(isUniversal(node, Type.SEQUENCE) ? node : undefined, what);
}

/** The members of a SET. Throws IDENTITY_INVALID naming `what` for anything else. */
export function setOf(node: Asn1 | undefined, what: string): Asn1[] {
  return members(isUniversal(node, Type.SET) ? node : undefined, what);
}

/** The members of a context-specific element. Throws IDENTITY_INVALID naming `what` for anything else. */
export function contextOf(node: Asn1 | undefined, tag: number, what: string): Asn1[] {
  return members(isContext(node, tag) ? node : undefined, what);
}

/** The bytes of an OCTET STRING. Throws IDENTITY_INVALID naming `what` for anything else. */
export function octets(node: Asn1 | undefined, what: string): Buffer {
  return content(isUniversal(node, Type.OCTETSTRING) ? node : undefined, what);
}

/** The bytes of a BIT STRING without unused bits. Throws IDENTITY_INVALID naming `what` for anything else. */
export function wholeBits(node: Asn1 | undefined, what: string): Buffer {
  const bits = content(isUniversal(node, Type.BITSTRING) ? node : undefined, what);
  if (bits[0] !== 0) throw wrongType(what);
  return bits.subarray(1);
}

/** The bytes of a primitive element of any type. Throws IDENTITY_INVALID naming `what` for a constructed one. */
export function content(node: Asn1 | undefined, what: string): Buffer {
  if (node === undefined || typeof node.value !== 'string') throw wrongType(what);
  return Buffer.from(node.value, 'latin1');
}

/** The dotted form of an OBJECT IDENTIFIER. Throws IDENTITY_INVALID naming `what` for anything else. */
export function oidText(node: Asn1 | undefined, what: string): string {
  const der = content(isUniversal(node, Type.OID) ? node : undefined, what);
  if (der.length === 0) throw wrongType(what);
  return asn1.derToOid(util.createBuffer(der.toString('latin1')));
}

/** True for a BOOLEAN that is not FALSE. */
export function isTrue(node: Asn1): boolean {
  return isUniversal(node, Type.BOOLEAN) && content(node, 'a boolean').some((byte) => byte !== 0);
}

/** True for a context-specific node with this tag. */
export function isContext(node: Asn1 | undefined, tag: number): boolean {
  const type: number | undefined = node?.type;
  return node?.tagClass === Class.CONTEXT_SPECIFIC && type === tag;
}

/**
 * The bytes of the first element inside a SEQUENCE exactly as they were received. A signature covers these bytes, and
 * another encoding of the tree may differ. Throws IDENTITY_INVALID naming `what`.
 */
export function firstElement(der: Buffer, what: string): Buffer {
  if (der[0] !== 0x30) throw wrongType(what);
  const outer = header(der, 0, what);
  const inner = header(der, outer.start, what);
  return der.subarray(outer.start, inner.end);
}

/** The place of an element in DER bytes: its tag at `offset`, its content from `start` to `end`. */
export interface DerElement {
  readonly tag: number;
  readonly offset: number;
  readonly start: number;
  readonly end: number;
}

/**
 * Yields the elements between two offsets one at a time, without a tree: some lists are too long for objects. Throws
 * IDENTITY_INVALID naming `what` when the elements do not fill the space exactly.
 */
export function* derElements(
  der: Buffer,
  from: number,
  to: number,
  what: string,
): Generator<DerElement, void, undefined> {
  for (let offset = from; offset < to;) {
    const { start, end } = header(der, offset, what);
    if (end > to) throw truncated(what);
    yield { tag: der[offset] ?? 0, offset, start, end };
    offset = end;
  }
}

function members(node: Asn1 | undefined, what: string): Asn1[] {
  if (node === undefined || !Array.isArray(node.value)) throw wrongType(what);
  return node.value;
}

function isUniversal(node: Asn1 | undefined, type: forge.asn1.Type): node is Asn1 {
  return node?.tagClass === Class.UNIVERSAL && node.type === type;
}

function wrongType(what: string): MeshError {
  return new MeshError('IDENTITY_INVALID', `${what} is missing or malformed`);
}

function header(der: Buffer, offset: number, what: string): { start: number; end: number } {
  const first = der[offset + 1];
  // Certificates and lists have no tag above 30, which would take more than one byte.
  if (first === undefined || ((der[offset] ?? 0) & 0x1f) === 0x1f) throw truncated(what);
  const count = first < 0x80 ? 0 : first & 0x7f;
  const start = offset + 2 + count;
  if (count > 4 || first === 0x80 || start > der.length) throw truncated(what);
  const length = count === 0 ? first : der.readUIntBE(offset + 2, count);
  if (start + length > der.length) throw truncated(what);
  return { start, end: start + length };
}

function truncated(what: string): MeshError {
  return new MeshError('IDENTITY_INVALID', `${what} is cut short`);
}

function binary(data: Uint8Array): string {
  return Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('latin1');
}
