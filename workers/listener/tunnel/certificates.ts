import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { TunnelCredentials } from '../../../lib/hbone/credentials.ts';
import { CERTIFICATES_PER_TURN, CERTIFICATE_WAIT_MS, MAX_CERTIFICATE_WAITERS } from '../limits.ts';
import type { CredentialOptions } from '../../../lib/hbone/credentials.ts';
import type { WorkloadCertificate } from '../../../lib/identity/workload-certificate.ts';

interface Waiter {
  readonly resolve: (credentials: TunnelCredentials) => void;
  readonly reject: (error: MeshError) => void;
  readonly timer: Timer;
}

/** Settings and callbacks of {@link CertificateStore}. */
export interface CertificateOptions extends CredentialOptions {
  /** Tells node-proxy that a connection waits for the identity. */
  readonly request: (identity: string) => void;
  /** A certificate came with other roots than the one before it. */
  readonly rootsChanged?: (credentials: TunnelCredentials) => void;
  /** A certificate makes no TLS context: IDENTITY_INVALID. The one before it stays. */
  readonly unusable?: (identity: string, error: MeshError) => void;
}

/** The certificates of one thread, as TLS contexts that all connections of an identity share. */
export class CertificateStore {
  readonly #options: CertificateOptions;
  readonly #clock: Clock;
  readonly #credentials = new Map<string, TunnelCredentials>();
  readonly #waiters = new Map<string, Set<Waiter>>();
  /** Certificates that wait for a turn to be taken, the newest of each identity. */
  readonly #queued = new Map<string, WorkloadCertificate>();
  /** Taken in this turn of the event loop. */
  #taken = 0;
  #turning = false;

  constructor(options: CertificateOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  /**
   * The identity's credentials, at once when a valid certificate is here. Otherwise asks for one and waits;
   * rejects with what node-proxy says, or IDENTITY_UNAVAILABLE after a time limit.
   */
  get(identity: string): TunnelCredentials | Promise<TunnelCredentials> {
    const known = this.#credentials.get(identity);
    if (known !== undefined && known.notAfterMs > this.#clock.now()) return known;
    return this.#wait(identity);
  }

  /** Takes a new certificate: at once while the turn has room, else in one of the next turns. */
  put(certificate: WorkloadCertificate): void {
    if (this.#taken < CERTIFICATES_PER_TURN && this.#queued.size === 0) this.#take(certificate);
    else this.#queued.set(certificate.identity, certificate);
    this.#turnLater();
  }

  /** No pod here has the identity any more: its key and contexts are forgotten. Whoever waits for it goes on waiting. */
  drop(identity: string): void {
    this.#queued.delete(identity);
    this.#credentials.delete(identity);
  }

  /** Nobody can get the identity now: those who wait for it are told. A certificate that is here stays. */
  unavailable(identity: string, error: MeshError): void {
    // A certificate that came before this failure serves those who wait.
    const queued = this.#queued.get(identity);
    if (queued !== undefined) this.#take(queued);
    this.#settle(identity, (waiter) => waiter.reject(error));
  }

  #turnLater(): void {
    if (this.#turning) return;
    this.#turning = true;
    setImmediate(() => {
      this.#turning = false;
      this.#taken = 0;
      for (const certificate of this.#queued.values()) {
        if (this.#taken === CERTIFICATES_PER_TURN) break;
        this.#take(certificate);
      }
      if (this.#taken > 0) this.#turnLater();
    });
  }

  #take(certificate: WorkloadCertificate): void {
    const { identity } = certificate;
    this.#queued.delete(identity);
    this.#taken += 1;
    let credentials: TunnelCredentials;
    try {
      credentials = new TunnelCredentials(certificate, this.#options);
    } catch (error) {
      const failure = asMeshError(error, 'IDENTITY_INVALID');
      this.#options.unusable?.(identity, failure);
      this.#settle(identity, (waiter) => waiter.reject(failure));
      return;
    }
    const before = this.#credentials.get(identity);
    this.#credentials.set(identity, credentials);
    if (before !== undefined && before.rootsPem !== credentials.rootsPem) {
      this.#options.rootsChanged?.(credentials);
    }
    this.#settle(identity, (waiter) => waiter.resolve(credentials));
  }

  #wait(identity: string): Promise<TunnelCredentials> {
    const waiters = this.#waiters.get(identity) ?? new Set<Waiter>();
    if (waiters.size >= MAX_CERTIFICATE_WAITERS) {
      return Promise.reject(unavailableYet(identity, 'too many connections wait for it'));
    }
    return new Promise((resolve, reject) => {
      const timer = this.#clock.after(CERTIFICATE_WAIT_MS, () => {
        waiters.delete(waiter);
        if (waiters.size === 0) this.#waiters.delete(identity);
        reject(unavailableYet(identity, `none came within ${CERTIFICATE_WAIT_MS} ms`));
      });
      const waiter: Waiter = { resolve, reject, timer };
      waiters.add(waiter);
      this.#waiters.set(identity, waiters);
      if (waiters.size === 1) this.#options.request(identity);
    });
  }

  #settle(identity: string, action: (waiter: Waiter) => void): void {
    const waiters = this.#waiters.get(identity);
    this.#waiters.delete(identity);
    for (const waiter of waiters ?? []) {
      waiter.timer.cancel();
      action(waiter);
    }
  }
}

/** The failure of a connection that a certificate kept waiting. */
function unavailableYet(identity: string, why: string): MeshError {
  return new MeshError('IDENTITY_UNAVAILABLE', `no certificate for ${identity}: ${why}`);
}
