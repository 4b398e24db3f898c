/** Certificate signing requests (PKCS #10), made and read. */
import { createPublicKey, generateKeyPair } from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { promisify } from 'node:util';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import {
  bitString,
  context,
  contextOf,
  firstElement,
  fromDer,
  integer,
  oid,
  oidText,
  sequence,
  sequenceOf,
  set,
  setOf,
  toDer,
  wholeBits,
} from './asn1.ts';
import type { Asn1 } from './asn1.ts';
import { checkKeyStrength, signerFor, verifySignature } from './signature.ts';
import { reportedRoots, rootReport } from './root-report.ts';
import { altNameExtension, asksForAuthority, uriNames } from './subject-alt-name.ts';
import type { AltName } from './subject-alt-name.ts';

/** A request and its private key. The key stays in this process. */
export interface CertificateRequest {
  readonly key: KeyObject;
  readonly csrPem: string;
}

/** The content of a verified request. */
export interface ParsedRequest {
  readonly publicKey: KeyObject;
  /** The URI names, unchecked. */
  readonly uris: readonly string[];
  /** Short names of the roots that the requester trusts (root-report.ts); null when it reports none. */
  readonly trustedRoots: readonly string[] | null;
}

/** Far above any real request; a caller must not make the CA parse megabytes. */
const MAX_CSR_BYTES = 32 * 1024;

const EXTENSION_REQUEST = '1.2.840.113549.1.9.14';
const generateKeys = promisify(generateKeyPair);

/**
 * Makes a P-256 key and a request for one SPIFFE identity, like Istio's clients (docs/spec/control.md §5). It reports the
 * `trusted` roots.
 */
export function requestFor(
  identity: string,
  trusted: readonly X509Certificate[] = [],
): Promise<CertificateRequest> {
  return createRequest([{ kind: 'uri', value: identity }], trusted);
}

/**
 * Makes a P-256 key and a request with an empty subject and these critical names. Without names the CA takes them from the
 * caller's token. It reports the `trusted` roots.
 */
export async function createRequest(
  names: readonly AltName[],
  trusted: readonly X509Certificate[] = [],
): Promise<CertificateRequest> {
  const { privateKey, publicKey } = await generateKeys('ec', { namedCurve: 'P-256' });
  const report = rootReport(trusted);
  const attributes = [
    ...(names.length === 0 ? [] : [requestedNames(names)]),
    ...(report === null ? [] : [report]),
  ].sort((left, right) => Buffer.compare(toDer(left), toDer(right)));
  const info = sequence(
    integer(Buffer.of(0)),
    sequence(),
    fromDer(publicKey.export({ format: 'der', type: 'spki' }), 'the public key'),
    context(0, ...attributes),
  );
  const signer = signerFor(privateKey);
  const signature = await signer.sign(toDer(info));
  const der = toDer(sequence(info, signer.algorithm, bitString(signature)));
  return { key: privateKey, csrPem: toPem('CERTIFICATE REQUEST', der) };
}

/**
 * Reads a request and verifies that it is signed by the key it names. Throws IDENTITY_INVALID with the reason:
 * no PEM, broken DER, no or a weak key, an unknown algorithm, a wrong signature, a request for an authority.
 */
export async function parseRequest(csrPem: string): Promise<ParsedRequest> {
  const der = requestDer(csrPem);
  const [info, algorithm, signature] = sequenceOf(fromDer(der, 'the CSR'), 'the CSR');
  const [, , spki, attributes] = sequenceOf(info, 'the CSR information');
  const publicKey = readPublicKey(spki);
  const algorithmOid = oidText(sequenceOf(algorithm, 'the CSR algorithm')[0], 'the CSR algorithm');
  const valid = await verifySignature(
    algorithmOid,
    publicKey,
    firstElement(der, 'the CSR'),
    wholeBits(signature, 'the CSR signature'),
  );
  if (!valid) {
    throw new MeshError('IDENTITY_INVALID', 'the CSR is not signed by the key it names');
  }
  const listed = attributes === undefined ? [] : contextOf(attributes, 0, 'the CSR attributes');
  return { publicKey, uris: requestedUris(listed), trustedRoots: reportedRoots(listed) };
}

/** One PEM block of DER bytes. */
export function toPem(label: string, der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
}

function requestedNames(names: readonly AltName[]): Asn1 {
  return sequence(oid(EXTENSION_REQUEST), set(sequence(altNameExtension(names))));
}

function requestDer(csrPem: string): Buffer {
  if (csrPem.length > MAX_CSR_BYTES) {
    throw new MeshError('IDENTITY_INVALID', `the CSR is larger than ${MAX_CSR_BYTES} bytes`);
  }
  const match = /-----BEGIN (?:NEW )?CERTIFICATE REQUEST-----([A-Za-z0-9+/=\s]+)-----END/.exec(
    csrPem,
  );
  if (match?.[1] === undefined) {
    throw new MeshError('IDENTITY_INVALID', 'the CSR is not a PEM certificate request');
  }
  return Buffer.from(match[1], 'base64');
}

function readPublicKey(spki: Asn1 | undefined): KeyObject {
  if (spki === undefined) throw new MeshError('IDENTITY_INVALID', 'the CSR holds no public key');
  let key: KeyObject;
  try {
    key = createPublicKey({ key: toDer(spki), format: 'der', type: 'spki' });
  } catch (error) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the CSR's public key cannot be read: ${errorText(error)}`,
      {
        cause: error,
      },
    );
  }
  checkKeyStrength(key, "the CSR's key");
  return key;
}

/** Throws IDENTITY_INVALID for a request that asks for an authority's certificate. */
function requestedUris(attributes: readonly Asn1[]): string[] {
  const uris: string[] = [];
  for (const attribute of attributes) {
    const [type, values] = sequenceOf(attribute, 'a CSR attribute');
    if (oidText(type, 'a CSR attribute') !== EXTENSION_REQUEST) continue;
    for (const extensions of setOf(values, 'the CSR extensions')) {
      if (asksForAuthority(extensions)) {
        throw new MeshError('IDENTITY_INVALID', 'the CSR asks for the certificate of an authority');
      }
      uris.push(...uriNames(extensions));
    }
  }
  return uris;
}
