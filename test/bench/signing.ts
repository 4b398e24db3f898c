/** Measures the certificates that the CA's signing threads issue: checks of requests included, gRPC and tokens left out. */
import { X509Certificate } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import { requestFor } from '../../lib/identity/csr.ts';
import { createRoot } from '../../lib/identity/x509.ts';
import { SigningPool } from '../../services/ca/signing-pool.ts';
import { MAX_CONCURRENT_REQUESTS } from '../../services/ca/limits.ts';

const { values } = parseArgs({
  options: {
    threads: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '3' },
  },
});
const IDENTITY = 'spiffe://cluster.local/ns/demo/sa/web';
const DAY_MS = 86_400_000;
const now = Date.now();
const root = await createRoot('cluster.local', now, now + DAY_MS);
const { csrPem } = await requestFor(IDENTITY);
const pool = new SigningPool(Number(values.threads));
const task = {
  csrPem,
  names: [{ kind: 'uri' as const, value: IDENTITY }],
  notBeforeMs: now,
  notAfterMs: now + DAY_MS,
  issuerPem: root.certificatePem,
  key: root.key,
};

/** Issues until the time is over, with as many requests under way as the CA admits; returns the number. */
async function issue(seconds: number): Promise<number> {
  const end = performance.now() + seconds * 1_000;
  let issued = 0;
  const worker = async (): Promise<void> => {
    while (performance.now() < end) {
      await pool.sign(task);
      issued += 1;
    }
  };
  await Promise.all(Array.from({ length: MAX_CONCURRENT_REQUESTS }, worker));
  return issued;
}

const seconds = Number(values.seconds);
await issue(seconds / 2);
const before = process.cpuUsage();
const startedMs = performance.now();
const issued = await issue(seconds);
const tookMs = performance.now() - startedMs;
const { user, system } = process.cpuUsage(before);
const { certificatePem } = await pool.sign(task);
if (
  !new X509Certificate(certificatePem).verify(new X509Certificate(root.certificatePem).publicKey)
) {
  throw new Error('the certificate is not signed by the root');
}
await pool.close();
process.stdout.write(
  `P-256, ${values.threads} threads: ${Math.round((issued * 1_000) / tookMs)} certificates/s, ${Math.round(issued / ((user + system) / 1e6))} per second of processor time\n`,
);
