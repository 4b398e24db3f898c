import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import type { ServingCertificate } from '../../lib/grpc/server.ts';
import { renewalDelayMs } from '../../lib/identity/renewal.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import { issueLeaf } from '../../lib/identity/x509.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority } from './authority.ts';
import { BACKDATE_MS, SERVING_LIFETIME_MS } from './limits.ts';

const generateKeys = promisify(generateKeyPair);

/** Issues the CA's own server certificate; its key lives in memory only. */
export async function issueOwnCertificate(
  authority: Authority,
  names: readonly AltName[],
  nowMs: number,
): Promise<{ readonly certificate: ServingCertificate; readonly notAfterMs: number }> {
  const { privateKey, publicKey } = await generateKeys('ec', { namedCurve: 'P-256' });
  const notAfterMs = Math.min(nowMs + SERVING_LIFETIME_MS, authority.chainExpiresMs);
  const leaf = await issueLeaf(authority.issuer, {
    publicKey,
    names,
    notBeforeMs: nowMs - BACKDATE_MS,
    notAfterMs,
  });
  return {
    certificate: {
      chainPem: leaf + authority.intermediates.join(''),
      keyPem: privateKey.export({ format: 'pem', type: 'pkcs8' }),
    },
    notAfterMs,
  };
}

/**
 * Runs `renew` at half of each certificate's life until `signal` aborts. `renew` returns the end of the new certificate;
 * after a failure it runs again at half of the remaining time.
 */
export async function renewOwnCertificate(
  notAfterMs: number,
  { clock, log }: { readonly clock: Clock; readonly log: Pick<Logger, 'error'> },
  signal: AbortSignal,
  renew: () => Promise<number>,
): Promise<void> {
  let endMs = notAfterMs;
  while (!signal.aborted) {
    await pause(clock, renewalDelayMs(clock.now(), endMs, Math.random()), signal);
    if (signal.aborted) return;
    try {
      endMs = await renew();
    } catch (error) {
      log.error({ problem: errorText(error) }, 'serving-certificate.renewal-failed');
    }
  }
}
