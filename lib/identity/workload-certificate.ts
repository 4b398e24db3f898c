import { X509Certificate } from 'node:crypto';
import type { KeyObject } from 'node:crypto';
import { present } from '../errors/assert.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { verifyChain, uriAltNames } from './peer-verify.ts';
import { parseCertificates, splitCertificates } from '../tls/pem.ts';
import type { Roots } from './trust-bundle.ts';

/** A certificate in use, with the roots that verify peers. It is replaced as a whole. */
export interface WorkloadCertificate {
  readonly identity: string;
  /** Leaf then intermediates, PEM. */
  readonly chainPem: string;
  /** Never leaves the process; its threads have it too. */
  readonly key: KeyObject;
  /** The process's own trust bundle, PEM; never the roots that came with the chain. */
  readonly rootsPem: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
  /** Hexadecimal. */
  readonly serialNumber: string;
}

/** The request, to compare with the answer. */
export interface AwaitedCertificate {
  readonly identity: string;
  readonly key: KeyObject;
}

/** An accepted answer. */
export interface AcceptedCertificate {
  readonly certificate: WorkloadCertificate;
  /** SHA-256 fingerprints of roots that came with the chain and are not in the bundle. They are reported, never used. */
  readonly unknownRoots: readonly string[];
}

/** The parts of a CA's answer (docs/spec/control.md §5). */
export interface CaAnswer {
  readonly leaf: X509Certificate;
  readonly intermediates: readonly X509Certificate[];
  /** Without unreadable ones. */
  readonly roots: readonly X509Certificate[];
}

/** Most elements of an answer, above any real chain; bounds the work. */
const MAX_CHAIN_ELEMENTS = 10;

/**
 * Splits a CA's answer. Throws IDENTITY_INVALID for fewer than two or too many elements, and for a leaf or intermediate that
 * cannot be read.
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
 * Accepts a CA's answer if the leaf has the requested key and identity and leads to a root of the own bundle. Throws
 * IDENTITY_INVALID with the reason otherwise.
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
      'the certificate is for another key than the requested one',
    );
  }
  const [name] = uriAltNames(leaf.subjectAltName);
  if (name !== awaited.identity) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the certificate names ${name ?? 'no identity'}, expected ${awaited.identity}`,
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

/** Returns the SHA-256 fingerprints of the roots that are not in the bundle. */
export function unknownRoots(roots: readonly X509Certificate[], trusted: Roots): string[] {
  const known = new Set(trusted.certificates.map((root) => root.fingerprint256));
  return roots.map((root) => root.fingerprint256).filter((fingerprint) => !known.has(fingerprint));
}

/** Returns the reason why the certificate does not lead to a root of the bundle; null when it does. */
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
      // Istio skips unreadable roots as well; the roots in use come from the bundle file in any case.
      return [];
    }
  });
}
