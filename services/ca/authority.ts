/** The CA's signing key and certificates: made once and kept, or plugged in (docs/spec/istiod-ambient.md §4.4). */
import { createPrivateKey } from 'node:crypto';
import type { KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import { verifyChain } from '../../lib/identity/peer-verify.ts';
import type { Issuer } from '../../lib/identity/x509.ts';
import { createRoot } from '../../lib/identity/x509.ts';
import { BACKDATE_MS, ROOT_LIFETIME_MS } from './limits.ts';

/** The signing key and the certificates that accompany every leaf. */
export interface Authority {
  readonly issuer: Issuer;
  /** The certificates between a leaf and the roots, in order; PEM. */
  readonly intermediates: readonly string[];
  /** The trust bundle, PEM. */
  readonly rootsPem: string;
  /** The earliest end of a certificate of the path; no leaf outlives it. */
  readonly chainExpiresMs: number;
  readonly rootExpiresMs: number;
}

/** One file holds key and certificate, so that they always match. */
const ROOT_FILE = 'root.pem';

/**
 * Reads the CA's own root, and makes it on the first start. Throws STATE_INVALID for an unusable root and never replaces it,
 * because a new root would cut off every workload.
 */
export async function ownAuthority(
  stateDir: string,
  trustDomain: string,
  nowMs: number,
): Promise<Authority> {
  const path = join(stateDir, ROOT_FILE);
  const kept = await readIfPresent(path);
  if (kept !== null) return readOwn(path, kept);
  const root = await createRoot(trustDomain, nowMs - BACKDATE_MS, nowMs + ROOT_LIFETIME_MS);
  const key = root.key.export({ format: 'pem', type: 'pkcs8' });
  const content = root.certificatePem + key;
  await replaceFile(path, content, 0o600);
  return readOwn(path, content);
}

function readOwn(path: string, content: string): Authority {
  try {
    const certificate = present(
      parseCertificates(content, path)[0],
      'parsing refuses no certificates',
    );
    const key = createPrivateKey(content);
    return assemble(certificate, key, [], [certificate]);
  } catch (error) {
    throw new MeshError(
      'STATE_INVALID',
      `the root in ${path} cannot be used: ${errorText(error)}`,
      {
        cause: error,
        detail: { path },
      },
    );
  }
}

/** Files of a plugged-in authority, under Istio's names. */
const PLUGGED_FILES = ['ca-cert.pem', 'ca-key.pem', 'root-cert.pem', 'cert-chain.pem'] as const;

/**
 * Reads a signing certificate of another authority. Throws CONFIG_INVALID that names the folder and the fault: a missing
 * file, files that do not match, or an expired certificate.
 */
export async function pluggedAuthority(dir: string, nowMs: number): Promise<Authority> {
  const contents = await Promise.all(
    PLUGGED_FILES.map(async (name) => readIfPresent(join(dir, name))),
  );
  const missing = PLUGGED_FILES.filter((_, index) => contents[index] === null);
  if (missing.length > 0) {
    throw new MeshError('CONFIG_INVALID', `${dir} lacks ${missing.join(', ')}`, {
      detail: { dir },
    });
  }
  const [certificatePem = '', keyPem = '', rootsPem = '', chainPem = ''] = contents.map(
    (content) => content ?? '',
  );
  try {
    const [certificate] = parseCertificates(certificatePem, 'ca-cert.pem');
    const roots = parseCertificates(rootsPem, 'root-cert.pem');
    const chain = parseCertificates(chainPem, 'cert-chain.pem');
    const signing = present(certificate, 'parsing refuses no certificates');
    const known = new Set(roots.map((root) => root.fingerprint256));
    const path = [signing, ...chain].filter((item) => !known.has(item.fingerprint256));
    const unique = [...new Map(path.map((item) => [item.fingerprint256, item])).values()];
    if (!known.has(signing.fingerprint256)) verifyChain(signing, unique, roots, nowMs);
    return assemble(signing, createPrivateKey(keyPem), unique, roots);
  } catch (error) {
    throw new MeshError(
      'CONFIG_INVALID',
      `the signing certificate in ${dir} cannot be used: ${errorText(error)}`,
      {
        cause: error,
        detail: { dir },
      },
    );
  }
}

function assemble(
  certificate: X509Certificate,
  key: KeyObject,
  intermediates: readonly X509Certificate[],
  roots: readonly X509Certificate[],
): Authority {
  if (!certificate.ca) throw new MeshError('STATE_INVALID', 'the certificate is not an authority');
  if (!certificate.checkPrivateKey(key)) {
    throw new MeshError('STATE_INVALID', 'the private key is not the one of the certificate');
  }
  const ends = [certificate, ...intermediates].map((item) => item.validToDate.getTime());
  return {
    issuer: { certificate, key },
    intermediates: intermediates.map((item) => item.toString()),
    rootsPem: roots.map((root) => root.toString()).join(''),
    chainExpiresMs: Math.min(...ends),
    rootExpiresMs: Math.min(...roots.map((root) => root.validToDate.getTime())),
  };
}
