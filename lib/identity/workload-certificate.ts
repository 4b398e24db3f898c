import { X509Certificate } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { present } from '../errors/assert.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { verifyChain, uriAltNames } from './peer-verify.ts';
import { parseCertificates, splitCertificates } from '../tls/pem.ts';
import type { Roots } from './trust-bundle.ts';

/** A certificate that is ready for use, with the roots to verify peers by. Replaced as a whole. */
export interface WorkloadCertificate {
  readonly identity: string;
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  /** Never leaves the process but for its own threads. */
  readonly key: KeyObject;
  /** The process's own trust bundle, PEM; never what came with the chain. */
  readonly rootsPem: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** Hexadecimal. */
  readonly serialNumber: string;
}

/** What was asked for, to hold against the answer. */
export interface AwaitedCertificate {
  readonly identity: string;
  readonly key: KeyObject;
}

/** An answer that was found good. */
export interface AcceptedCertificate {
  readonly certificate: WorkloadCertificate;
  /** Roots that came with the chain and are not in the bundle: SHA-256 fingerprints. To be reported, never used. */
  readonly unknownRoots: readonly string[];
}

/** An answer of the CA taken apart (docs/spec/control.md §5): leaf, intermediates, roots. */
export interface CaAnswer {
  readonly leaf: X509Certificate;
  readonly intermediates: readonly X509Certificate[];
  /** Unreadable ones are left out. */
  readonly roots: readonly X509Certificate[];
}

/** More elements than any real chain; bounds the work on an answer. */
const MAX_CHAIN_ELEMENTS = 10;

/**
 * Takes a CA's answer apart. Throws IDENTITY_INVALID when it has fewer than two elements or holds a leaf or
 * intermediate that cannot be read.
 */
export function parseCaAnswer(chain: readonly string[]): CaAnswer {
  if (chain.length < 2 || chain.length > MAX_CHAIN_ELEMENTS) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the CA's answer has ${chain.length} elements; from 2 to ${MAX_CHAIN_ELEMENTS} are expected`,
    );
  }
  const [leafPem = '', ...others] = chain;
  const rootsPem = others.pop() ?? '';
  return {
    leaf: firstCertificate(leafPem, "the leaf in the CA's answer"),
    intermediates: others.map((pem, index) =>
      firstCertificate(pem, `intermediate ${index + 1} in the CA's answer`),
    ),
    roots: readableCertificates(rootsPem),
  };
}

/**
 * Accepts a CA's answer only if the leaf is for our key and names the identity, and leads to a root of our own
 * bundle. Throws IDENTITY_INVALID with the reason otherwise.
 */
export function acceptCertificate(
  awaited: AwaitedCertificate,
  chain: readonly string[],
  trusted: Roots,
  nowMs: number,
): AcceptedCertificate {
  const answer = parseCaAnswer(chain);
  const { leaf, intermediates } = answer;
  if (!leaf.checkPrivateKey(awaited.key)) {
    throw new MeshError(
      'IDENTITY_INVALID',
      'the certificate is for another key than the one asked for',
    );
  }
  const [name] = uriAltNames(leaf.subjectAltName);
  if (name !== awaited.identity) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the certificate names ${name ?? 'no identity'}, asked for ${awaited.identity}`,
    );
  }
  verifyChain(leaf, intermediates, trusted.certificates, nowMs);
  return {
    certificate: {
      identity: awaited.identity,
      chainPem: [leaf, ...intermediates].map((certificate) => certificate.toString()).join(''),
      key: awaited.key,
      rootsPem: trusted.pem,
      notBeforeMs: leaf.validFromDate.getTime(),
      notAfterMs: leaf.validToDate.getTime(),
      serialNumber: leaf.serialNumber,
    },
    unknownRoots: unknownRoots(answer.roots, trusted),
  };
}

/** SHA-256 fingerprints of the roots that the bundle does not hold. */
export function unknownRoots(roots: readonly X509Certificate[], trusted: Roots): string[] {
  const known = new Set(trusted.certificates.map((root) => root.fingerprint256));
  return roots.map((root) => root.fingerprint256).filter((fingerprint) => !known.has(fingerprint));
}

/** Null when the certificate in use still leads to a root of the bundle, else why not. */
export function trustProblem(
  certificate: WorkloadCertificate,
  trusted: Roots,
  nowMs: number,
): string | null {
  const [leaf, ...intermediates] = parseCertificates(certificate.chainPem, 'the certificate');
  if (leaf === undefined) return 'the certificate is empty';
  try {
    verifyChain(leaf, intermediates, trusted.certificates, nowMs);
    return null;
  } catch (error) {
    return errorText(error);
  }
}

function firstCertificate(pem: string, what: string): X509Certificate {
  return present(parseCertificates(pem, what)[0], 'parsing refuses a text without certificates');
}

function readableCertificates(pem: string): X509Certificate[] {
  return splitCertificates(pem).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      // Upstream skips roots it cannot read; ours come from the bundle file in any case.
      return [];
    }
  });
}
