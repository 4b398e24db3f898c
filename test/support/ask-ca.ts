/**
 * Runs in a node's namespace: asks the CA for a certificate with a token, as a node that was taken over might, and
 * prints the outcome as JSON. Arguments: CA address, file of roots, file of the token, identity.
 */
import { MAX_ANSWER_BYTES, CaClient } from '../../lib/identity/ca-client.ts';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import { requestFor } from '../../lib/identity/csr.ts';

const [address = '', rootCa = '', authToken = '', identity = ''] = process.argv.slice(2);
const ca = new CaClient({
  address,
  rootCa,
  authToken,
  altHostname: null,
  clusterId: 'Kubernetes',
  headers: {},
  maxReceiveBytes: MAX_ANSWER_BYTES,
});
try {
  const { csrPem } = await requestFor(identity);
  const chain = await ca.createCertificate(
    { csr: csrPem, validitySeconds: 60, impersonated: identity },
    AbortSignal.timeout(60_000),
  );
  process.stdout.write(JSON.stringify({ certificates: chain.length }));
} catch (error) {
  const { code, message } = asMeshError(error, 'IDENTITY_UNAVAILABLE');
  process.stdout.write(JSON.stringify({ code, message }));
} finally {
  ca.close();
}
