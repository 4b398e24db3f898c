/** The CA's signing key and certificates (docs/spec/istiod-ambient.md §4.4). */
import { createPrivateKey } from 'node:crypto';
import type { X509Certificate } from 'node:crypto';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { parseRevocationLists } from '../../lib/identity/crl.ts';
import { verifyChain } from '../../lib/identity/peer-verify.ts';
import type { Issuer } from '../../lib/identity/x509.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';

/** The signing key and the certificates that accompany every leaf. */
export interface Authority {
  readonly issuer: Issuer;
  /** The certificates between a leaf and the roots, in order; PEM. */
  readonly intermediates: readonly string[];
  readonly roots: readonly X509Certificate[];
  /** The trust bundle, PEM. */
  readonly rootsPem: string;
  /** Revocation lists for the nodes, PEM; null when there are none. */
  readonly crlPem: string | null;
  /** The earliest end of a certificate of the path; no leaf outlives it. */
  readonly chainExpiresMs: number;
  /** The earliest end of a root. */
  readonly rootExpiresMs: number;
}

/** The files that make an authority, PEM. */
export interface AuthorityFiles {
  readonly certificatePem: string;
  readonly keyPem: string;
  /** May be empty when a root signs. */
  readonly chainPem: string;
  readonly rootsPem: string;
  readonly crlPem: string | null;
}

/** The progress of a root's rotation. */
export interface RotationReport {
  readonly step: 'prepare' | 'distribute' | 'sign';
  /** When the step began, milliseconds since the epoch. */
  readonly sinceMs: number;
  /** The number of holders that do not trust the new root yet. */
  readonly missing: number;
}

/** The current authority and its successors. */
export interface AuthoritySource {
  /** The authority in force. Must not be read before the start. */
  readonly current: Authority;
  /** The place of the key, for operators. */
  readonly where: string;
  /** The reason why the latest change of the source is not used; null when it is. */
  readonly problem: string | null;
  /** The rotation in progress; null without one. */
  readonly rotation: RotationReport | null;
  /** Calls `listener` after every change; the result ends that. */
  onChange(listener: (authority: Authority) => void): () => void;
  /** Reads the first authority and follows its changes. Throws when there is no usable one. */
  start(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Reads an authority. Throws IDENTITY_INVALID or STATE_INVALID with the reason: unreadable PEM, a certificate that is no
 * authority, a key of another certificate, a path that does not lead to a root at `nowMs`, or a broken revocation list.
 */
export function readAuthority(files: AuthorityFiles, nowMs: number): Authority {
  const [certificate] = parseCertificates(files.certificatePem, 'ca-cert.pem');
  const signing = present(certificate, 'parsing refuses no certificates');
  const roots = parseCertificates(files.rootsPem, 'root-cert.pem');
  const chain =
    files.chainPem.trim() === '' ? [] : parseCertificates(files.chainPem, 'cert-chain.pem');
  const known = new Set(roots.map((root) => root.fingerprint256));
  const path = [signing, ...chain].filter((item) => !known.has(item.fingerprint256));
  const intermediates = [...new Map(path.map((item) => [item.fingerprint256, item])).values()];
  if (!known.has(signing.fingerprint256)) verifyChain(signing, intermediates, roots, nowMs);
  const key = createPrivateKey(files.keyPem);
  if (!signing.ca) throw new MeshError('STATE_INVALID', 'the certificate is not an authority');
  if (!signing.checkPrivateKey(key)) {
    throw new MeshError('STATE_INVALID', 'the private key is not the one of the certificate');
  }
  if (files.crlPem !== null) parseRevocationLists(Buffer.from(files.crlPem));
  const ends = [signing, ...intermediates].map((item) => item.validToDate.getTime());
  return {
    issuer: { certificate: signing, key },
    intermediates: intermediates.map((item) => item.toString()),
    roots,
    rootsPem: roots.map((root) => root.toString()).join(''),
    crlPem: files.crlPem,
    chainExpiresMs: Math.min(...ends),
    rootExpiresMs: Math.min(...roots.map((root) => root.validToDate.getTime())),
  };
}
