/** Issues X.509 certificates: workload and server leaves, and the mesh's own root (docs/spec/istiod-ambient.md §4.3). */
import { createHash, generateKeyPair, randomBytes } from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { promisify } from 'node:util';
import {
  bitString,
  booleanTrue,
  context,
  contextBytes,
  contextOf,
  fromDer,
  integer,
  isContext,
  octetString,
  octets,
  oid,
  oidText,
  sequence,
  sequenceOf,
  set,
  time,
  toDer,
  utf8String,
  wholeBits,
} from './asn1.ts';
import type { Asn1 } from './asn1.ts';
import { toPem } from './csr.ts';
import { signerFor } from './signature.ts';
import { altNameExtension, extension } from './subject-alt-name.ts';
import type { AltName } from './subject-alt-name.ts';

/** A certificate that signs others, with its key. */
export interface Issuer {
  readonly certificate: X509Certificate;
  readonly key: KeyObject;
}

/** The parts of issuers that leaves repeat; an issuer signs many, and to read its certificate takes as long as to sign. */
const readIssuers = new WeakMap<X509Certificate, readonly [name: Asn1, keyId: Buffer]>();

/** The content of a leaf certificate. Times in milliseconds since the epoch, rounded down to the second. */
export interface LeafRequest {
  readonly publicKey: KeyObject;
  /** At least one. They are critical because the subject is empty. */
  readonly names: readonly AltName[];
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

const SERIAL_BYTES = 16;
const ORGANISATION = '2.5.4.10';
const SUBJECT_KEY_ID = '2.5.29.14';
const KEY_USAGE = '2.5.29.15';
const BASIC_CONSTRAINTS = '2.5.29.19';
const AUTHORITY_KEY_ID = '2.5.29.35';
const EXTENDED_KEY_USAGE = '2.5.29.37';
const SERVER_AUTH = '1.3.6.1.5.5.7.3.1';
const CLIENT_AUTH = '1.3.6.1.5.5.7.3.2';
const generateKeys = promisify(generateKeyPair);

/** Issues a leaf for server and client use; PEM. */
export async function issueLeaf(issuer: Issuer, request: LeafRequest): Promise<string> {
  const [issuerName, issuerKeyId] = issuerParts(issuer.certificate);
  const spki = request.publicKey.export({ format: 'der', type: 'spki' });
  return assemble(issuer.key, {
    issuer: issuerName,
    subject: sequence(),
    spki,
    notBeforeMs: request.notBeforeMs,
    notAfterMs: request.notAfterMs,
    extensions: [
      // digitalSignature and keyEncipherment: bits 0 and 2, five unused.
      extension(KEY_USAGE, true, bitString(Buffer.of(0b1010_0000), 5)),
      extension(EXTENDED_KEY_USAGE, false, sequence(oid(SERVER_AUTH), oid(CLIENT_AUTH))),
      extension(BASIC_CONSTRAINTS, true, sequence()),
      extension(SUBJECT_KEY_ID, false, octetString(keyId(spki))),
      extension(AUTHORITY_KEY_ID, false, sequence(contextBytes(0, issuerKeyId))),
      altNameExtension(request.names),
    ],
  });
}

/** Makes a self-signed P-256 root with this organisation. */
export async function createRoot(
  organisation: string,
  notBeforeMs: number,
  notAfterMs: number,
): Promise<{ certificatePem: string; key: KeyObject }> {
  const { privateKey, publicKey } = await generateKeys('ec', { namedCurve: 'P-256' });
  const name = organisationName(organisation);
  const certificatePem = await assembleAuthority(privateKey, publicKey, {
    issuer: name,
    subject: name,
    authorityKeyId: null,
    notBeforeMs,
    notAfterMs,
  });
  return { certificatePem, key: privateKey };
}

/** Issues an intermediate authority for the caller's key; PEM. */
export async function issueIntermediate(
  issuer: Issuer,
  publicKey: KeyObject,
  organisation: string,
  validity: { readonly notBeforeMs: number; readonly notAfterMs: number },
): Promise<string> {
  const [issuerName, issuerKeyId] = issuerParts(issuer.certificate);
  return assembleAuthority(issuer.key, publicKey, {
    issuer: issuerName,
    subject: organisationName(organisation),
    authorityKeyId: issuerKeyId,
    ...validity,
  });
}

function organisationName(organisation: string): Asn1 {
  return sequence(set(sequence(oid(ORGANISATION), utf8String(organisation))));
}

function assembleAuthority(
  signingKey: KeyObject,
  publicKey: KeyObject,
  parts: {
    issuer: Asn1;
    subject: Asn1;
    authorityKeyId: Buffer | null;
    notBeforeMs: number;
    notAfterMs: number;
  },
): Promise<string> {
  const spki = publicKey.export({ format: 'der', type: 'spki' });
  const { authorityKeyId, ...rest } = parts;
  return assemble(signingKey, {
    ...rest,
    spki,
    extensions: [
      // keyCertSign and cRLSign: bits 5 and 6, one unused.
      extension(KEY_USAGE, true, bitString(Buffer.of(0b0000_0110), 1)),
      extension(BASIC_CONSTRAINTS, true, sequence(booleanTrue())),
      extension(SUBJECT_KEY_ID, false, octetString(keyId(spki))),
      ...(authorityKeyId === null
        ? []
        : [extension(AUTHORITY_KEY_ID, false, sequence(contextBytes(0, authorityKeyId)))]),
    ],
  });
}

interface CertificateParts {
  readonly issuer: Asn1;
  readonly subject: Asn1;
  readonly spki: Buffer;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  readonly extensions: Asn1[];
}

async function assemble(signingKey: KeyObject, parts: CertificateParts): Promise<string> {
  const signer = signerFor(signingKey);
  const toBeSigned = sequence(
    context(0, integer(Buffer.of(2))),
    integer(randomBytes(SERIAL_BYTES)),
    signer.algorithm,
    parts.issuer,
    sequence(time(parts.notBeforeMs), time(parts.notAfterMs)),
    parts.subject,
    fromDer(parts.spki, 'the public key'),
    context(3, sequence(...parts.extensions)),
  );
  const signature = await signer.sign(toDer(toBeSigned));
  return toPem('CERTIFICATE', toDer(sequence(toBeSigned, signer.algorithm, bitString(signature))));
}

/** RFC 7093 §2 method 1: the first 160 bits of the SHA-256 of the key's bit string. */
function keyId(spki: Buffer): Buffer {
  const parts = sequenceOf(fromDer(spki, 'the public key'), 'the public key');
  const bits = wholeBits(parts[1], 'the public key');
  return createHash('sha256').update(bits).digest().subarray(0, 20);
}

/** Returns the issuer's name in its own encoding, and the key id from its own certificate. */
function issuerParts(certificate: X509Certificate): readonly [name: Asn1, keyId: Buffer] {
  const known = readIssuers.get(certificate);
  if (known !== undefined) return known;
  const what = 'the signing certificate';
  const fields = sequenceOf(sequenceOf(fromDer(certificate.raw, what), what)[0], what);
  // With version: serial, algorithm, issuer, validity, subject.
  const subject = fields[isContext(fields[0], 0) ? 5 : 4];
  const own = fields.find((field) => isContext(field, 3));
  const found =
    own === undefined ? null : subjectKeyId(sequenceOf(contextOf(own, 3, what)[0], what), what);
  const spki = certificate.publicKey.export({ format: 'der', type: 'spki' });
  const parts = [sequence(...sequenceOf(subject, what)), found ?? keyId(spki)] as const;
  readIssuers.set(certificate, parts);
  return parts;
}

function subjectKeyId(extensions: readonly Asn1[], what: string): Buffer | null {
  for (const item of extensions) {
    const parts = sequenceOf(item, what);
    if (oidText(parts[0], what) === SUBJECT_KEY_ID) {
      return octets(fromDer(octets(parts.at(-1), what), what), what);
    }
  }
  return null;
}
