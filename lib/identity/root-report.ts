/**
 * A requester's report of the roots that it trusts, in its signing request: a CA that rotates its root learns who trusts the
 * new one. It is a PKCS #9 `unstructuredName` (RFC 2985 §5.4.2), which other CAs ignore.
 */
import type { X509Certificate } from 'node:crypto';
import { content, oid, oidText, sequence, sequenceOf, set, setOf, utf8String } from './asn1.ts';
import type { Asn1 } from './asn1.ts';

const UNSTRUCTURED_NAME = '1.2.840.113549.1.9.2';
const PREFIX = 'weft-roots:';
const NAME_LENGTH = 16;

/** Most roots in a report; a rotation has two. */
const MAX_ROOTS = 16;

const REPORT = new RegExp(
  `^${PREFIX}([0-9a-f]{${NAME_LENGTH}}(?:,[0-9a-f]{${NAME_LENGTH}}){0,${MAX_ROOTS - 1}})$`,
);

/** The short name of a root: the first 16 hexadecimal digits of the certificate's SHA-256. */
export function rootName(root: X509Certificate): string {
  return root.fingerprint256.replaceAll(':', '').slice(0, NAME_LENGTH).toLowerCase();
}

/** The attribute of a signing request; null when the report would be empty or too long. */
export function rootReport(roots: readonly X509Certificate[]): Asn1 | null {
  if (roots.length === 0 || roots.length > MAX_ROOTS) return null;
  const text = PREFIX + roots.map(rootName).join(',');
  return sequence(oid(UNSTRUCTURED_NAME), set(utf8String(text)));
}

/** The reported names; null for a request without a report. Throws IDENTITY_INVALID for broken DER. */
export function reportedRoots(attributes: readonly Asn1[]): readonly string[] | null {
  for (const attribute of attributes) {
    const [type, values] = sequenceOf(attribute, 'a CSR attribute');
    if (oidText(type, 'a CSR attribute') !== UNSTRUCTURED_NAME) continue;
    const [value] = setOf(values, 'the name in the CSR');
    const text = value === undefined ? '' : content(value, 'the name in the CSR').toString('utf8');
    const names = REPORT.exec(text)?.[1];
    if (names !== undefined) return names.split(',');
  }
  return null;
}
