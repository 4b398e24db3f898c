/** A serving certificate in a folder, as cert-manager and `kubectl create secret tls` make it. */
import { X509Certificate, createPrivateKey } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { FollowedFile } from '../../../lib/files/followed-file.ts';
import { FreshReading } from '../../../lib/files/fresh-reading.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { ServingCertificate } from '../../../lib/tls/parameters.ts';

const DEBOUNCE_MS = 500;
const POLL_MS = 60_000;

/** The file with the roots that the certificate leads to. */
export const ROOT_FILE = 'ca.crt';

/** Reads `tls.crt` and `tls.key`. Throws IDENTITY_INVALID that names the folder when they are missing or do not match. */
export async function readCertificateFiles(folder: string): Promise<ServingCertificate> {
  try {
    const [chainPem, keyPem] = await Promise.all([
      readFile(join(folder, 'tls.crt'), 'utf8'),
      readFile(join(folder, 'tls.key'), 'utf8'),
    ]);
    if (!new X509Certificate(chainPem).checkPrivateKey(createPrivateKey(keyPem))) {
      throw new Error('tls.crt is for another key than tls.key');
    }
    return { chainPem, keyPem };
  } catch (error) {
    throw new MeshError(
      'IDENTITY_INVALID',
      `the serving certificate in ${folder} cannot be used: ${errorText(error)}`,
      { cause: error },
    );
  }
}

/** Calls `changed` with each new usable content of the folder; the result ends that. */
export function followCertificateFiles(
  folder: string,
  { clock, log }: { readonly clock: Clock; readonly log: Logger },
  changed: (certificate: ServingCertificate) => void,
): () => void {
  let last = '';
  const reading = new FreshReading(async () => {
    try {
      const certificate = await readCertificateFiles(folder);
      if (certificate.chainPem !== last) changed(certificate);
      last = certificate.chainPem;
    } catch (error) {
      log.warn({ folder, problem: errorText(error) }, 'webhook.certificate-unusable');
    }
  });
  const follower = new FollowedFile(
    { path: join(folder, 'tls.crt'), debounceMs: DEBOUNCE_MS, pollMs: POLL_MS },
    { clock, log },
    () => void reading.run(),
  );
  return () => follower.close();
}
