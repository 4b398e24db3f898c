/** A certificate manager with a signer, a bundle and a clock under the test's control. */
import { X509Certificate } from 'node:crypto';
import type { ExecutionContext } from 'ava';
import type { MeshError } from '../../lib/errors/mesh-error.ts';
import { CertificateManager } from '../../lib/identity/certificate-manager.ts';
import { parseRequest } from '../../lib/identity/csr.ts';
import { parseCertificates } from '../../lib/tls/pem.ts';
import type { SigningPort, Urgency } from '../../lib/identity/signing-port.ts';
import type { Roots } from '../../lib/identity/trust-bundle.ts';
import type { WorkloadCertificate } from '../../lib/identity/workload-certificate.ts';
import { createRoot, issueLeaf } from '../../lib/identity/x509.ts';
import type { Issuer } from '../../lib/identity/x509.ts';
import { keptLog } from './actor-context.ts';
import { FakeClock } from './fake-clock.ts';
import { until } from './until.ts';

/** The time at the start of each test. */
export const START = Date.UTC(2026, 10, 21);
export const WEB = 'spiffe://cluster.local/ns/demo/sa/web';
export const API = 'spiffe://cluster.local/ns/demo/sa/api';

/** A request that waits for the test's answer. */
export interface Request {
  readonly identity: string;
  readonly urgency: Urgency;
  readonly csrPem: string;
  readonly signal: AbortSignal;
  readonly fail: (error: MeshError) => void;
  readonly answer: (chain: readonly string[]) => void;
  readonly giveUp: (error: MeshError) => void;
}

/** A signer under the test's control: the test decides when requests are answered. */
class PlayedSigning implements SigningPort {
  readonly requests: Request[] = [];
  readonly raised: [string, Urgency][] = [];
  readonly hastened: string[] = [];

  request(
    identity: string,
    csrPem: string,
    urgency: Urgency,
    options: { signal: AbortSignal; onFailure: (error: MeshError) => void },
  ): Promise<readonly string[]> {
    const { promise, resolve, reject } = Promise.withResolvers<readonly string[]>();
    options.signal.addEventListener('abort', () => reject(options.signal.reason as Error));
    this.requests.push({
      identity,
      csrPem,
      urgency,
      signal: options.signal,
      fail: options.onFailure,
      answer: resolve,
      giveUp: reject,
    });
    return promise;
  }

  raise(identity: string, urgency: Urgency): void {
    this.raised.push([identity, urgency]);
  }

  hasten(identity: string): void {
    this.hastened.push(identity);
  }
}

/** A root that signs. */
export interface Authority {
  readonly pem: string;
  readonly issuer: Issuer;
}

/** Makes an authority. */
export async function authority(): Promise<Authority> {
  const root = await createRoot('cluster.local', START - 1_000, START + 10_000 * 86_400_000);
  return {
    pem: root.certificatePem,
    issuer: { certificate: new X509Certificate(root.certificatePem), key: root.key },
  };
}

/** The roots of a trust bundle with these authorities. */
export function rootsOf(...authorities: readonly Authority[]): Roots {
  const pem = authorities.map((item) => item.pem).join('');
  return { pem, certificates: parseCertificates(pem, 'roots') };
}

class PlayedBundle {
  current: Roots | null;
  readonly #listeners = new Set<(roots: Roots) => void>();

  constructor(roots: Roots | null) {
    this.current = roots;
  }

  onChange(listener: (roots: Roots) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  change(roots: Roots): void {
    this.current = roots;
    for (const listener of this.#listeners) listener(roots);
  }
}

/** The manager, and what it was told and said. */
export interface Kit {
  readonly clock: FakeClock;
  readonly signing: PlayedSigning;
  readonly bundle: PlayedBundle;
  readonly ca: Authority;
  readonly manager: CertificateManager;
  readonly published: WorkloadCertificate[];
  readonly unavailable: [string, MeshError][];
  readonly counted: string[];
  /** Waits for the request with this number, from 1. */
  request(number: number): Promise<Request>;
  /** Signs a request as the CA would. */
  sign(
    request: Request,
    lifeMs: number,
    options?: { by?: Authority; identity?: string },
  ): Promise<void>;
}

/** Makes a manager; the test's end closes it. */
export async function kit(t: ExecutionContext, roots: 'known' | 'unknown' = 'known'): Promise<Kit> {
  const clock = new FakeClock(START);
  const ca = await authority();
  const signing = new PlayedSigning();
  const bundle = new PlayedBundle(roots === 'known' ? rootsOf(ca) : null);
  const published: WorkloadCertificate[] = [];
  const unavailable: [string, MeshError][] = [];
  const counted: string[] = [];
  const manager = new CertificateManager('node-1', {
    clock,
    signing,
    bundle,
    log: keptLog('test').log,
    metrics: {
      issued: () => counted.push('issued'),
      failed: (code) => counted.push(code),
      unknownRoot: () => counted.push('unknownRoot'),
    },
    // No jitter: renewals come at exactly half of the life.
    random: () => 0.5,
  });
  manager.subscribe({
    certificate: (certificate) => published.push(certificate),
    unavailable: (identity, error) => unavailable.push([identity, error]),
  });
  t.teardown(() => manager.close());
  return {
    clock,
    signing,
    bundle,
    ca,
    manager,
    published,
    unavailable,
    counted,
    request: (number) => until(() => signing.requests[number - 1], { what: `request ${number}` }),
    async sign(request, lifeMs, options = {}) {
      const { publicKey } = await parseRequest(request.csrPem);
      const by = options.by ?? ca;
      const leaf = await issueLeaf(by.issuer, {
        publicKey,
        names: [{ kind: 'uri', value: options.identity ?? request.identity }],
        notBeforeMs: clock.now() - 120_000,
        notAfterMs: clock.now() + lifeMs,
      });
      const before = counted.length;
      request.answer([leaf, by.pem]);
      await until(() => counted.length > before, { what: 'the answer to be taken in' });
    },
  };
}
