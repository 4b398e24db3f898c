import { X509Certificate } from 'node:crypto';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import { parseRequest } from '../../lib/identity/csr.ts';
import { issueLeaf } from '../../lib/identity/x509.ts';
import type { SigningOutcome, SigningTask } from './protocol/task.ts';

/** The issuer of the last task, so that its certificate is read once. */
let last: { readonly pem: string; readonly certificate: X509Certificate } | null = null;

/**
 * Checks a signing request and issues a certificate with the task's names: only the key is taken from the request. The
 * outcome is IDENTITY_INVALID for a request that is malformed, signed wrong, or has a bad key.
 */
export async function sign(task: SigningTask): Promise<SigningOutcome> {
  try {
    const { publicKey, trustedRoots } = await parseRequest(task.csrPem);
    if (last?.pem !== task.issuerPem) {
      last = { pem: task.issuerPem, certificate: new X509Certificate(task.issuerPem) };
    }
    const certificatePem = await issueLeaf(
      { certificate: last.certificate, key: task.key },
      {
        publicKey,
        names: task.names,
        notBeforeMs: task.notBeforeMs,
        notAfterMs: task.notAfterMs,
      },
    );
    const { serialNumber } = new X509Certificate(certificatePem);
    return { ok: true, certificatePem, serial: serialNumber, trustedRoots };
  } catch (error) {
    return { ok: false, error: asMeshError(error, 'IDENTITY_UNAVAILABLE').toWire() };
  }
}
