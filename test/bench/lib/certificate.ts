/** Makes the certificate of the pairs that Weft is compared with. */
import { join } from 'node:path';
import { output } from './process.ts';

/** Files of a run's authority: `both` holds the leaf and its key, for client and server. */
export interface PairCertificate {
  readonly both: string;
  readonly root: string;
}

/** Makes a P-256 root and one leaf with openssl. */
export async function makeCertificate(directory: string): Promise<PairCertificate> {
  const at = (name: string): string => join(directory, name);
  const request = ['req', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
  const openssl = (...args: string[]): Promise<string> => output('openssl', args);
  const root = ['-x509', '-days', '2', '-subj', '/CN=bench-root'];
  await openssl(...request, ...root, '-keyout', at('root.key'), '-out', at('root.pem'));
  const leaf = ['-subj', '/CN=bench', '-keyout', at('leaf.key'), '-out', at('leaf.csr')];
  await openssl(...request, ...leaf);
  const signer = ['-CA', at('root.pem'), '-CAkey', at('root.key'), '-CAcreateserial'];
  const files = ['-in', at('leaf.csr'), '-out', at('leaf.pem')];
  await openssl('x509', '-req', ...files, ...signer, '-days', '2');
  await output('sh', ['-c', `cat ${at('leaf.pem')} ${at('leaf.key')} > ${at('both.pem')}`]);
  return { both: at('both.pem'), root: at('root.pem') };
}
