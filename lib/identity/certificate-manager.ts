/** Holds a certificate for every identity of a node's workloads and keeps it fresh. Knows no Redis and no CA. */
import { setImmediate as turn } from 'node:timers/promises';
import type { Clock } from '../clock/clock.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { CertificateEntry } from './certificate-entry.ts';
import type { EntryDeps } from './certificate-entry.ts';
import type { CertificateMetrics } from './certificate-metrics.ts';
import { dumpOf, recordOf } from './certificate-records.ts';
import type { CertificateDump, CertificateRecord } from './certificate-records.ts';
import { RequestSlots } from './request-slots.ts';
import type { SigningPort, Urgency } from './signing-port.ts';
import { parseSpiffe } from '../net/spiffe.ts';
import type { Roots, TrustBundle } from './trust-bundle.ts';
import type { AcceptedCertificate, WorkloadCertificate } from './workload-certificate.ts';

/** What the manager needs. */
export interface CertificateManagerDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly signing: SigningPort;
  readonly bundle: Pick<TrustBundle, 'current' | 'onChange'>;
  readonly metrics: CertificateMetrics;
  /** For jitter; tests replace it. */
  readonly random?: () => number;
}

/** Told of certificates as they come and go. */
export interface CertificateListener {
  /** A certificate came into use, or goes on with changed roots. */
  certificate(certificate: WorkloadCertificate): void;
  /** There is no usable certificate, and why; told again for every failed attempt. */
  unavailable(identity: string, error: MeshError): void;
}

/** What is known of an identity at this moment. */
export type CertificateStatus =
  | { readonly kind: 'available'; readonly certificate: WorkloadCertificate }
  | { readonly kind: 'unavailable'; readonly error: MeshError }
  /** The first certificate is on its way; listeners will be told. */
  | { readonly kind: 'initializing' };

/**
 * Identities that changed roots are applied to in one turn of the event loop: some 0.3 ms each, with the message to every
 * thread.
 */
export const ROOTS_PER_TURN = 10;

/** Identities of one node; far above the pods a node can hold. */
export const MAX_IDENTITIES = 20_000;

/**
 * One entry per identity: Initializing until the first answer, then Available or Unavailable. A failed renewal
 * keeps a valid certificate in use; an expired one is never handed out. The owner calls `close`.
 */
export class CertificateManager {
  readonly #node: string;
  readonly #deps: CertificateManagerDeps;
  readonly #entries = new Map<string, CertificateEntry>();
  readonly #listeners = new Set<CertificateListener>();
  readonly #slots = new RequestSlots();
  readonly #unsubscribe: () => void;
  /** The roots that entries are told of now; null when all were. */
  #applying: Roots | null = null;

  constructor(node: string, deps: CertificateManagerDeps) {
    this.#node = node;
    this.#deps = deps;
    this.#unsubscribe = deps.bundle.onChange((roots) => void this.#applyRoots(roots));
  }

  /**
   * Sees to it that the identity has a certificate, and says what is known now. Asking again with more urgency
   * moves a request under way forward. Throws IDENTITY_INVALID for a text that is no identity,
   * IDENTITY_UNAVAILABLE when there are too many.
   */
  want(identity: string, urgency: Urgency): CertificateStatus {
    const entry = this.#entries.get(identity);
    if (entry === undefined) {
      this.#create(identity, urgency);
      return { kind: 'initializing' };
    }
    const status = this.status(identity);
    if (status.kind !== 'available') entry.raise(urgency);
    return status;
  }

  /** What is known of the identity, without asking for it; an unknown one counts as initializing. */
  status(identity: string): CertificateStatus {
    const entry = this.#entries.get(identity);
    const certificate = entry?.usable ?? null;
    if (certificate !== null) return { kind: 'available', certificate };
    const error = entry?.error ?? null;
    return error === null ? { kind: 'initializing' } : { kind: 'unavailable', error };
  }

  /** Drops the identity, its key, and any request for it. Harmless for an unknown one. */
  forget(identity: string): void {
    this.#entries.get(identity)?.end();
    if (this.#entries.delete(identity)) this.#deps.log.debug({ identity }, 'certificate.forgotten');
  }

  /** Calls the listener from now on; the result ends it. */
  subscribe(listener: CertificateListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Identities that are looked after. */
  identities(): string[] {
    return [...this.#entries.keys()].sort();
  }

  /** How many identities are in which state. */
  counts(): Record<'initializing' | 'available' | 'unavailable', number> {
    const counts = { initializing: 0, available: 0, unavailable: 0 };
    for (const identity of this.#entries.keys()) counts[this.status(identity).kind] += 1;
    return counts;
  }

  /** For `weft get certificates`, sorted by identity. */
  records(): CertificateRecord[] {
    return this.#sorted().map((entry) =>
      recordOf(entry.identity, this.#node, entry.held, entry.state),
    );
  }

  /** For the config dump, sorted by identity. */
  dump(): CertificateDump[] {
    return this.#sorted().map((entry) => dumpOf(entry.identity, entry.held, entry.state));
  }

  /** Ends all requests and timers and forgets every key. */
  close(): void {
    this.#unsubscribe();
    this.#applying = null;
    for (const entry of this.#entries.values()) entry.end();
    this.#entries.clear();
    this.#listeners.clear();
  }

  /** The first entries at once, the others in the next turns. Newer roots begin from the first again. */
  async #applyRoots(roots: Roots): Promise<void> {
    this.#applying = roots;
    let applied = 0;
    for (const entry of this.#entries.values()) {
      if (applied > 0 && applied % ROOTS_PER_TURN === 0) await turn();
      if (this.#applying !== roots) return;
      entry.rootsChanged(roots);
      applied += 1;
    }
    this.#applying = null;
  }

  #create(identity: string, urgency: Urgency): void {
    parseSpiffe(identity);
    if (this.#entries.size >= MAX_IDENTITIES) {
      throw new MeshError(
        'IDENTITY_UNAVAILABLE',
        `${MAX_IDENTITIES} identities are looked after already`,
      );
    }
    const entry = new CertificateEntry(identity, urgency, this.#entryDeps(identity));
    this.#entries.set(identity, entry);
    entry.start();
  }

  #entryDeps(identity: string): EntryDeps {
    const { clock, signing, bundle, random } = this.#deps;
    return {
      clock,
      signing,
      slots: this.#slots,
      random: random ?? Math.random,
      roots: () => bundle.current,
      accepted: (accepted) => this.#accepted(accepted),
      republished: (certificate) => this.#publish(certificate),
      failed: (error, unavailable) => this.#failed(identity, error, unavailable),
    };
  }

  #accepted({ certificate, unknownRoots }: AcceptedCertificate): void {
    const { identity, serialNumber, notAfterMs } = certificate;
    this.#deps.metrics.issued();
    this.#deps.log.info(
      { identity, serial: serialNumber, notAfter: new Date(notAfterMs).toISOString() },
      'certificate.received',
    );
    for (const fingerprint of unknownRoots) {
      this.#deps.metrics.unknownRoot();
      this.#deps.log.warn({ identity, fingerprint }, 'certificate.unknown-root-ignored');
    }
    this.#publish(certificate);
  }

  #failed(identity: string, error: MeshError, unavailable: boolean): void {
    this.#deps.metrics.failed(error.code);
    this.#deps.log.warn(
      { identity, code: error.code, reason: error.message, keepsCertificate: !unavailable },
      'certificate.request-failed',
    );
    if (!unavailable) return;
    for (const listener of this.#listeners) listener.unavailable(identity, error);
  }

  #publish(certificate: WorkloadCertificate): void {
    for (const listener of this.#listeners) listener.certificate(certificate);
  }

  #sorted(): CertificateEntry[] {
    return [...this.#entries.values()].sort((left, right) =>
      left.identity < right.identity ? -1 : 1,
    );
  }
}
