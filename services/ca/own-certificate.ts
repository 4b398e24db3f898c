import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { FreshReading } from '../../lib/files/fresh-reading.ts';
import type { ServingCertificate } from '../../lib/tls/parameters.ts';
import { renewalDelayMs } from '../../lib/identity/renewal.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import { issueLeaf } from '../../lib/identity/x509.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority, AuthoritySource } from './authority.ts';
import { BACKDATE_MS, SERVING_LIFETIME_MS } from './limits.ts';

const generateKeys = promisify(generateKeyPair);

/** Issues the CA's own server certificate; its key lives in memory only. */
async function issueOwnCertificate(
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

/** A keeper's collaborators. */
export interface OwnCertificateDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'error'>;
  readonly authority: AuthoritySource;
  readonly names: readonly AltName[];
}

/**
 * Renews the CA's own certificate: at half of its life, and when another authority comes into force. A failure is tried
 * again at half of the remaining time. The owner closes it.
 */
export class OwnCertificate {
  readonly #deps: OwnCertificateDeps;
  readonly #listener: (certificate: ServingCertificate) => void;
  readonly #reading = new FreshReading(() => this.#renew());
  #unfollow: (() => void) | null = null;
  #timer: Timer | null = null;
  #notAfterMs = 0;

  /** Calls `listener` with every certificate after the first. */
  constructor(deps: OwnCertificateDeps, listener: (certificate: ServingCertificate) => void) {
    this.#deps = deps;
    this.#listener = listener;
  }

  /** Issues the first certificate and begins to renew it. */
  async start(): Promise<ServingCertificate> {
    const certificate = await this.#issue();
    this.#unfollow = this.#deps.authority.onChange(() => void this.#reading.run());
    this.#schedule();
    return certificate;
  }

  close(): void {
    this.#unfollow?.();
    this.#unfollow = null;
    this.#timer?.cancel();
  }

  async #issue(): Promise<ServingCertificate> {
    const { authority, names, clock } = this.#deps;
    const issued = await issueOwnCertificate(authority.current, names, clock.now());
    this.#notAfterMs = issued.notAfterMs;
    return issued.certificate;
  }

  async #renew(): Promise<void> {
    if (this.#unfollow === null) return;
    const { log } = this.#deps;
    try {
      this.#listener(await this.#issue());
      log.info(
        { notAfter: new Date(this.#notAfterMs).toISOString() },
        'serving-certificate.renewed',
      );
    } catch (error) {
      log.error({ problem: errorText(error) }, 'serving-certificate.renewal-failed');
    }
    this.#schedule();
  }

  #schedule(): void {
    if (this.#unfollow === null) return;
    this.#timer?.cancel();
    const { clock } = this.#deps;
    const delayMs = renewalDelayMs(clock.now(), this.#notAfterMs, Math.random());
    this.#timer = clock.after(delayMs, () => void this.#reading.run());
  }
}
