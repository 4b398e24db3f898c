import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { CERTIFICATE_WAIT_MS, MAX_CERTIFICATE_WAITERS } from './limits.ts';
import type { CredentialOptions } from '../../lib/hbone/credentials.ts';
import type { CertificateBundle } from './protocol.ts';

interface Waiter {
  readonly resolve: (credentials: TunnelCredentials) => void;
  readonly reject: (error: MeshError) => void;
  readonly timer: Timer;
}

/** What a thread's certificates are made with. */
export interface CertificateOptions extends CredentialOptions {
  /** Tells node-proxy that a connection waits for the identity. */
  readonly request: (identity: string) => void;
  /** A certificate came with other roots than the one before it. */
  readonly rootsChanged?: (credentials: TunnelCredentials) => void;
}

/** The certificates of one thread, as TLS contexts that all connections of an identity share. */
export class CertificateStore {
  readonly #options: CertificateOptions;
  readonly #clock: Clock;
  readonly #credentials = new Map<string, TunnelCredentials>();
  readonly #waiters = new Map<string, Set<Waiter>>();

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

  /** Takes a new certificate; throws IDENTITY_INVALID when it is not usable, the old one stays then. */
  put(bundle: CertificateBundle): void {
    const credentials = new TunnelCredentials(bundle, this.#options);
    const before = this.#credentials.get(bundle.identity);
    this.#credentials.set(bundle.identity, credentials);
    if (before !== undefined && before.rootsPem !== credentials.rootsPem) {
      this.#options.rootsChanged?.(credentials);
    }
    this.#settle(bundle.identity, (waiter) => waiter.resolve(credentials));
  }

  /** No pod here has the identity any more: its key and contexts are forgotten. Whoever waits for it goes on waiting. */
  drop(identity: string): void {
    this.#credentials.delete(identity);
  }

  /** Nobody can get the identity now: those who wait for it are told. A certificate that is here stays. */
  unavailable(identity: string, error: MeshError): void {
    this.#settle(identity, (waiter) => waiter.reject(error));
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
