import { MeshError } from '../errors/mesh-error.ts';
import { tryParseIp } from '../net/address.ts';
import {
  booleanTrue,
  content,
  contextBytes,
  fromDer,
  isContext,
  isTrue,
  octetString,
  octets,
  oid,
  oidText,
  sequence,
  sequenceOf,
  toDer,
} from './asn1.ts';
import type { Asn1 } from './asn1.ts';

/** A name in a certificate or a signing request. */
export interface AltName {
  readonly kind: 'uri' | 'dns' | 'ip';
  readonly value: string;
}

const BASIC_CONSTRAINTS = '2.5.29.19';
const SUBJECT_ALT_NAME = '2.5.29.17';
const TAG_DNS = 2;
const TAG_URI = 6;
const TAG_IP = 7;

/** An X.509 extension. */
export function extension(id: string, critical: boolean, value: Asn1): Asn1 {
  return sequence(oid(id), ...(critical ? [booleanTrue()] : []), octetString(toDer(value)));
}

/** The subject alternative name extension, critical because the subject is empty (RFC 5280 §4.2.1.6). */
export function altNameExtension(names: readonly AltName[]): Asn1 {
  return extension(SUBJECT_ALT_NAME, true, sequence(...names.map(generalName)));
}

/** True when the basic constraints of an `Extensions` sequence name an authority (RFC 5280 §4.2.1.9). */
export function asksForAuthority(extensions: Asn1): boolean {
  return sequenceOf(extensions, 'the extensions').some((item) => {
    const parts = sequenceOf(item, 'an extension');
    if (oidText(parts[0], 'an extension id') !== BASIC_CONSTRAINTS) return false;
    const value = octets(parts.at(-1), 'the basic constraints');
    const [authority] = sequenceOf(
      fromDer(value, 'the basic constraints'),
      'the basic constraints',
    );
    return authority !== undefined && isTrue(authority);
  });
}

/**
 * Returns the URIs among the alternative names of an `Extensions` sequence, in order. Throws IDENTITY_INVALID for
 * broken DER.
 */
export function uriNames(extensions: Asn1): string[] {
  const uris: string[] = [];
  for (const item of sequenceOf(extensions, 'the extensions')) {
    const parts = sequenceOf(item, 'an extension');
    if (oidText(parts[0], 'an extension id') !== SUBJECT_ALT_NAME) continue;
    const value = octets(parts.at(-1), 'the subject alternative name');
    const names = sequenceOf(
      fromDer(value, 'the subject alternative name'),
      'the subject alternative name',
    );
    for (const name of names) {
      if (isContext(name, TAG_URI)) uris.push(content(name, 'a URI name').toString('latin1'));
    }
  }
  return uris;
}

function generalName(name: AltName): Asn1 {
  switch (name.kind) {
    case 'uri':
      return contextBytes(TAG_URI, ascii(name.value));
    case 'dns':
      return contextBytes(TAG_DNS, ascii(name.value));
    case 'ip':
      return contextBytes(TAG_IP, addressBytes(name.value));
  }
}

function ascii(text: string): Buffer {
  if (text === '' || /[^\x21-\x7e]/.test(text)) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `not a usable certificate name: ${JSON.stringify(text)}`,
    );
  }
  return Buffer.from(text, 'latin1');
}

function addressBytes(text: string): Uint8Array {
  const address = tryParseIp(text);
  if (address !== null) return address.bytes;
  throw new MeshError('IDENTITY_INVALID', `not an IP address: ${JSON.stringify(text)}`);
}
