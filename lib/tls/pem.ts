import { X509Certificate } from 'node:crypto';
import { MeshError, errorText } from '../errors/mesh-error.ts';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** The certificates in a text, each as one PEM block ending in a newline; other blocks and text are skipped. */
export function splitCertificates(pem: string): string[] {
  return (pem.match(CERTIFICATE) ?? []).map((block) => `${block.replaceAll('\r', '')}\n`);
}

/**
 * The certificates in a text. Throws IDENTITY_INVALID that names `what` and the position when one cannot be
 * read or there is none.
 */
export function parseCertificates(pem: string, what: string): X509Certificate[] {
  const blocks = splitCertificates(pem);
  if (blocks.length === 0) throw new MeshError('IDENTITY_INVALID', `${what} holds no certificate`);
  return blocks.map((block, index) => {
    try {
      return new X509Certificate(block);
    } catch (error) {
      throw new MeshError(
        'IDENTITY_INVALID',
        `${what}: certificate ${index + 1} cannot be read: ${errorText(error)}`,
        { cause: error },
      );
    }
  });
}
