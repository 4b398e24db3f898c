import { generateKeyPair } from 'node:crypto';
import { promisify } from 'node:util';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import type { ServingCertificate } from '../../lib/grpc/server.ts';
import { renewalDelayMs } from '../../lib/identity/renewal.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import { issueLeaf } from '../../lib/identity/x509.ts';
import type { Authority } from './authority.ts';
import { BACKDATE_MS, SERVING_LIFETIME_MS } from './limits.ts';

const generateKeys = promisify(generateKeyPair);

/** A server certificate that the CA issues to itself; the key lives in memory only. */
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

/** Runs `renew` at half of the certificate's life, again and again; `renew` returns the next one's end. */
export class OwnRenewal {
  readonly #clock: Clock;
  readonly #renew: () => Promise<number>;
  readonly #failed: (error: unknown) => void;
  #timer: Timer | null = null;
  #stopped = false;

  constructor(clock: Clock, renew: () => Promise<number>, failed: (error: unknown) => void) {
    this.#clock = clock;
    this.#renew = renew;
    this.#failed = failed;
  }

  /** Waits for half of the time until `notAfterMs`. */
  schedule(notAfterMs: number): void {
    if (this.#stopped) return;
    const delay = renewalDelayMs(this.#clock.now(), notAfterMs, Math.random());
    this.#timer = this.#clock.after(delay, () => void this.#run(notAfterMs));
  }

  async #run(notAfterMs: number): Promise<void> {
    try {
      this.schedule(await this.#renew());
    } catch (error) {
      this.#failed(error);
      this.schedule(notAfterMs);
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }
}
