/** Signature algorithms of certificates and signing requests, over node:crypto (node-forge has no ECDSA). */
import { sign, verify } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { MeshError } from '../errors/mesh-error.ts';
import { nullValue, oid, sequence } from './asn1.ts';
import type { Asn1 } from './asn1.ts';

interface SignatureAlgorithm {
  readonly oid: string;
  /** Null where the algorithm fixes its own digest. */
  readonly digest: 'sha256' | 'sha384' | 'sha512' | null;
  readonly keyType: 'ec' | 'rsa' | 'ed25519';
}

const ALGORITHMS: readonly SignatureAlgorithm[] = [
  { oid: '1.2.840.10045.4.3.2', digest: 'sha256', keyType: 'ec' },
  { oid: '1.2.840.10045.4.3.3', digest: 'sha384', keyType: 'ec' },
  { oid: '1.2.840.10045.4.3.4', digest: 'sha512', keyType: 'ec' },
  { oid: '1.2.840.113549.1.1.11', digest: 'sha256', keyType: 'rsa' },
  { oid: '1.2.840.113549.1.1.12', digest: 'sha384', keyType: 'rsa' },
  { oid: '1.2.840.113549.1.1.13', digest: 'sha512', keyType: 'rsa' },
  { oid: '1.3.101.112', digest: null, keyType: 'ed25519' },
];

/** Each accepted curve with the digest that matches its strength. */
const CURVES: Readonly<Record<string, 'sha256' | 'sha384' | 'sha512'>> = {
  prime256v1: 'sha256',
  secp384r1: 'sha384',
  secp521r1: 'sha512',
};

const MIN_RSA_BITS = 2048;

/** Throws IDENTITY_INVALID with the reason for a key that is too weak or of an unknown kind. */
export function checkKeyStrength(key: KeyObject, what: string): void {
  const details = key.asymmetricKeyDetails;
  switch (key.asymmetricKeyType) {
    case 'ec':
      if (CURVES[details?.namedCurve ?? ''] !== undefined) return;
      throw new MeshError(
        'IDENTITY_INVALID',
        `${what} is on curve ${details?.namedCurve ?? 'unknown'}; P-256, P-384 or P-521 is needed`,
      );
    case 'rsa':
      if ((details?.modulusLength ?? 0) >= MIN_RSA_BITS) return;
      throw new MeshError(
        'IDENTITY_INVALID',
        `${what} is RSA with ${details?.modulusLength ?? 0} bits; at least ${MIN_RSA_BITS} are needed`,
      );
    case 'ed25519':
      return;
    default:
      throw new MeshError(
        'IDENTITY_INVALID',
        `${what} is of the kind ${key.asymmetricKeyType ?? 'unknown'}; ECDSA, RSA or Ed25519 is needed`,
      );
  }
}

/** A signature with the AlgorithmIdentifier that names it. */
export interface Signer {
  readonly algorithm: Asn1;
  /** Signs in libuv's pool, without blocking the event loop. */
  sign(data: Buffer): Promise<Buffer>;
}

/** Returns the signer of a private key. Throws IDENTITY_INVALID for a key that must not be used. */
export function signerFor(key: KeyObject): Signer {
  checkKeyStrength(key, 'the signing key');
  const keyType = key.asymmetricKeyType;
  const digest =
    keyType === 'ec'
      ? CURVES[key.asymmetricKeyDetails?.namedCurve ?? '']
      : keyType === 'rsa'
        ? 'sha256'
        : null;
  const algorithm = ALGORITHMS.find(
    (known) => known.keyType === keyType && known.digest === digest,
  );
  if (algorithm === undefined) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `no signature algorithm for a key of the kind ${keyType ?? 'unknown'}`,
    );
  }
  return {
    // RFC 4055 demands NULL parameters for RSA; other algorithms have none.
    algorithm: sequence(oid(algorithm.oid), ...(keyType === 'rsa' ? [nullValue()] : [])),
    sign: (data) =>
      new Promise((resolve, reject) => {
        sign(algorithm.digest, data, key, (error, signature) => {
          if (error === null) resolve(signature);
          else reject(error);
        });
      }),
  };
}

/** Returns true when signatures of this algorithm are accepted. */
export function isSignatureAlgorithm(algorithmOid: string): boolean {
  return ALGORITHMS.some((known) => known.oid === algorithmOid);
}

/**
 * Returns true when the key signed `data`. Throws IDENTITY_INVALID for an algorithm that is unknown, too weak, or for
 * another kind of key.
 */
export function verifySignature(
  algorithmOid: string,
  key: KeyObject,
  data: Buffer,
  signature: Buffer,
): Promise<boolean> {
  const { digest } = algorithmFor(algorithmOid, key);
  return new Promise((resolve, reject) => {
    verify(digest, data, key, signature, (error, valid) => {
      if (error === null) resolve(valid);
      else reject(error);
    });
  });
}

/** Like {@link verifySignature}, but synchronous, and false instead of an error. */
export function isSignedBy(
  algorithmOid: string,
  key: KeyObject,
  data: Uint8Array,
  signature: Uint8Array,
): boolean {
  try {
    return verify(algorithmFor(algorithmOid, key).digest, data, key, signature);
  } catch {
    // The algorithm is for another kind of key, or the bytes are no signature.
    return false;
  }
}

function algorithmFor(algorithmOid: string, key: KeyObject): SignatureAlgorithm {
  const algorithm = ALGORITHMS.find((known) => known.oid === algorithmOid);
  if (algorithm === undefined || algorithm.keyType !== key.asymmetricKeyType) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the signature algorithm ${algorithmOid} is not accepted for a key of the kind ${key.asymmetricKeyType ?? 'unknown'}`,
    );
  }
  return algorithm;
}
