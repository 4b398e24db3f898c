import { X509Certificate } from 'node:crypto';
import { MeshError, errorText } from '../errors/mesh-error.ts';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/** Returns the PEM block of each certificate, with a final newline; other blocks and text are skipped. */
export function splitCertificates(pem: string): string[] {
  return (pem.match(CERTIFICATE) ?? []).map((block) => `${block.replaceAll('\r', '')}\n`);
}

/** Parses the certificates of a text. Throws IDENTITY_INVALID that names `what` for none or an unreadable one. */
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
