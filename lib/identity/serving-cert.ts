import { createPrivateKey } from 'node:crypto';
import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { Backoff } from '../clock/backoff.ts';
import type { Clock, Timer } from '../clock/clock.ts';
import { present } from '../errors/assert.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { readIfPresent, replaceFile } from '../files/atomic-file.ts';
import { FreshReading } from '../files/fresh-reading.ts';
import { CaClient, MAX_ANSWER_BYTES } from './ca-client.ts';
import { createRequest } from './csr.ts';
import type { GrpcClientOptions } from '../grpc/client.ts';
import type { ServingCertificate } from '../tls/parameters.ts';
import { verifyChain } from './peer-verify.ts';
import { parseCertificates } from '../tls/pem.ts';
import { renewalDelayMs } from './renewal.ts';
import { readRoots } from '../tls/roots.ts';
import type { RootSource } from '../tls/roots.ts';
import { TrustBundle } from './trust-bundle.ts';
import { parseCaAnswer } from './workload-certificate.ts';

/** The source of the certificate and its folder. */
export interface ServingCertOptions {
  readonly ca: Omit<GrpcClientOptions, 'maxReceiveBytes'>;
  /** The certificate must lead to one of these roots. */
  readonly meshRoots: RootSource;
  /** The actor's own folder. */
  readonly stateDir: string;
  /** Requested life; 0 = the CA decides. */
  readonly lifetimeMs: number;
}

/** Collaborators of a {@link ServingCertKeeper}. */
export interface ServingCertDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
}

interface Held {
  readonly certificate: ServingCertificate;
  readonly notAfterMs: number;
}

/** One file holds key and chain, so that they always match. */
const FILE = 'serving.pem';

/** Short, because an infrastructure actor must recover soon after its CA. */
const BACKOFF = { baseMs: 500, maxMs: 15_000 } as const;

/**
 * Keeps a valid server certificate for an infrastructure actor. It asks the CA with the actor's own token, and the CA
 * decides the names. The certificate lies in the actor's folder (0600), so that the actor can restart while the CA is away;
 * it is renewed at half of its life. The owner closes it.
 */
export class ServingCertKeeper {
  readonly #options: ServingCertOptions;
  readonly #deps: ServingCertDeps;
  readonly #path: string;
  readonly #client: CaClient;
  /** Changed roots lead to another request, which tells the CA that they are here. */
  readonly #bundle: TrustBundle;
  readonly #renewing = new FreshReading(() => this.#renew());
  readonly #closing = new AbortController();
  readonly #backoff = new Backoff(BACKOFF);
  readonly #listeners = new Set<(certificate: ServingCertificate) => void>();
  #held: Held | null = null;
  #timer: Timer | null = null;
  #problem: string | null = null;

  constructor(options: ServingCertOptions, deps: ServingCertDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#path = join(options.stateDir, FILE);
    this.#client = new CaClient({ ...options.ca, maxReceiveBytes: MAX_ANSWER_BYTES });
    this.#bundle = new TrustBundle(options.meshRoots, deps);
  }

  /** The certificate in use; null before the first. */
  get current(): ServingCertificate | null {
    return this.#held?.certificate ?? null;
  }

  /**
   * Uses the kept certificate, if it is good, and begins to renew. A new one is requested at once in any case, because the
   * granted names may have changed.
   */
  async start(): Promise<void> {
    const kept = await this.#readKept();
    if (kept !== null) this.#use(kept);
    this.#schedule(0);
    await this.#bundle.start();
    this.#bundle.onChange(() => this.#schedule(0));
  }

  /** Resolves with the first certificate; rejects with IDENTITY_UNAVAILABLE when `signal` aborts first. */
  first(signal: AbortSignal): Promise<ServingCertificate> {
    if (this.#held !== null) return Promise.resolve(this.#held.certificate);
    return new Promise((resolve, reject) => {
      const unsubscribe = this.onChange((certificate) => {
        unsubscribe();
        signal.removeEventListener('abort', refuse);
        resolve(certificate);
      });
      const refuse = (): void => {
        unsubscribe();
        reject(
          new MeshError(
            'IDENTITY_UNAVAILABLE',
            `no serving certificate yet: ${this.#problem ?? 'no answer'}`,
          ),
        );
      };
      if (signal.aborted) refuse();
      else signal.addEventListener('abort', refuse, { once: true });
    });
  }

  /** Calls `listener` with every new certificate; the returned function ends that. */
  onChange(listener: (certificate: ServingCertificate) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#closing.abort(new MeshError('ACTOR_DEADLINE', 'the serving certificate is closed'));
    this.#timer?.cancel();
    this.#bundle.close();
    this.#client.close();
    this.#listeners.clear();
  }

  #schedule(delayMs: number): void {
    if (this.#closing.signal.aborted) return;
    this.#timer?.cancel();
    this.#timer = this.#deps.clock.after(delayMs, () => void this.#renewing.run());
  }

  async #renew(): Promise<void> {
    const { clock, log } = this.#deps;
    try {
      const held = await this.#request();
      if (this.#closing.signal.aborted) return;
      this.#backoff.reset();
      this.#problem = null;
      this.#use(held);
      log.info(
        { notAfter: new Date(held.notAfterMs).toISOString() },
        'serving-certificate.renewed',
      );
      this.#schedule(renewalDelayMs(clock.now(), held.notAfterMs, Math.random()));
    } catch (error) {
      if (this.#closing.signal.aborted) return;
      this.#report(errorText(error));
      this.#schedule(this.#backoff.next());
    }
  }

  /** Logs a problem once: a CA that is away is tried often. */
  #report(problem: string): void {
    if (problem === this.#problem) return;
    this.#problem = problem;
    this.#deps.log.warn(
      { problem, keepsCertificate: this.#held !== null },
      'serving-certificate.renewal-failed',
    );
  }

  async #request(): Promise<Held> {
    const { key, csrPem } = await createRequest([], await this.#trusted());
    const chain = await this.#client.createCertificate(
      {
        csr: csrPem,
        validitySeconds: Math.floor(this.#options.lifetimeMs / 1000),
        impersonated: null,
      },
      this.#closing.signal,
    );
    const { leaf, intermediates } = parseCaAnswer(chain);
    const keyPem = key.export({ format: 'pem', type: 'pkcs8' });
    const chainPem = [leaf, ...intermediates].map((item) => item.toString()).join('');
    const held = await this.#check({ chainPem, keyPem });
    await replaceFile(this.#path, chainPem + keyPem, 0o600);
    return held;
  }

  async #readKept(): Promise<Held | null> {
    try {
      const content = await readIfPresent(this.#path);
      if (content === null) return null;
      const chainPem = parseCertificates(content, this.#path)
        .map((item) => item.toString())
        .join('');
      const keyPem = createPrivateKey(content).export({ format: 'pem', type: 'pkcs8' });
      return await this.#check({ chainPem, keyPem });
    } catch (error) {
      this.#deps.log.info({ problem: errorText(error) }, 'serving-certificate.kept-unusable');
      return null;
    }
  }

  async #check(certificate: ServingCertificate): Promise<Held> {
    const [leaf, ...intermediates] = parseCertificates(certificate.chainPem, 'the certificate');
    const own: X509Certificate = present(leaf, 'parsing refuses no certificates');
    if (!own.checkPrivateKey(createPrivateKey(certificate.keyPem))) {
      throw new MeshError('IDENTITY_INVALID', 'the certificate is for another key');
    }
    verifyChain(own, intermediates, await this.#trusted(), this.#deps.clock.now());
    return { certificate, notAfterMs: own.validToDate.getTime() };
  }

  async #trusted(): Promise<X509Certificate[]> {
    return parseCertificates(await readRoots(this.#options.meshRoots), 'the trust bundle');
  }

  #use(held: Held): void {
    this.#held = held;
    for (const listener of this.#listeners) listener(held.certificate);
  }
}
