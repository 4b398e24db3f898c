/** Keeps a valid certificate for every identity of a node's workloads. Knows no Redis and no CA. */
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

const MS_PER_HOUR = 3_600_000;

/** Collaborators of a {@link CertificateManager}. */
export interface CertificateManagerDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly signing: SigningPort;
  readonly bundle: Pick<TrustBundle, 'current' | 'onChange'>;
  readonly metrics: CertificateMetrics;
  /** For jitter; tests replace it. */
  readonly random?: () => number;
}

/** Receives certificates and failures. */
export interface CertificateListener {
  /** A certificate came into use, or its roots changed. */
  certificate(certificate: WorkloadCertificate): void;
  /**
   * There is no usable certificate, and those who wait for one must not wait longer. Called again for every later attempt that
   * fails.
   */
  unavailable(identity: string, error: MeshError): void;
}

/** The state of an identity. */
export type CertificateStatus =
  | { readonly kind: 'available'; readonly certificate: WorkloadCertificate }
  | { readonly kind: 'unavailable'; readonly error: MeshError }
  /** The first certificate is requested; listeners receive it, or its failure. */
  | { readonly kind: 'initializing' };

/** Changed roots are applied to this many identities in one turn of the event loop; each takes some 0.3 ms. */
export const ROOTS_PER_TURN = 10;

/** Most identities of one node, far above its possible pods. */
const MAX_IDENTITIES = 20_000;

/**
 * Keeps one entry for each identity: Initializing until the first certificate or until a failure is told, then Available or
 * Unavailable. A valid certificate stays in use when its renewal fails; an expired one is never handed out. The owner calls `close`.
 */
export class CertificateManager {
  readonly #node: string;
  readonly #deps: CertificateManagerDeps;
  readonly #entries = new Map<string, CertificateEntry>();
  readonly #listeners = new Set<CertificateListener>();
  readonly #slots = new RequestSlots();
  readonly #unsubscribe: () => void;
  /** The roots that are being applied to the entries; null when that is done. */
  #applying: Roots | null = null;

  constructor(node: string, deps: CertificateManagerDeps) {
    this.#node = node;
    this.#deps = deps;
    this.#unsubscribe = deps.bundle.onChange((roots) => void this.#applyRoots(roots));
  }

  /**
   * Requests a certificate unless the identity has one, and returns the state. A call with more urgency moves the request
   * forward, and a real-time call ends the backoff of a failed request. Throws IDENTITY_INVALID for a malformed identity,
   * IDENTITY_UNAVAILABLE beyond {@link MAX_IDENTITIES}.
   */
  want(identity: string, urgency: Urgency): CertificateStatus {
    const entry = this.#entries.get(identity);
    if (entry === undefined) {
      this.#create(identity, urgency);
      return { kind: 'initializing' };
    }
    const status = this.status(identity);
    if (status.kind !== 'available') entry.raise(urgency);
    if (urgency === 'realTime') entry.retry(urgency);
    return status;
  }

  /** Ends the backoff of a failed request, whose cause may have ended. Does nothing for another identity. */
  retry(identity: string): void {
    this.#entries.get(identity)?.retry('warmUp');
  }

  /** Returns the state without a request; an unknown identity counts as initializing. */
  status(identity: string): CertificateStatus {
    const entry = this.#entries.get(identity);
    const certificate = entry?.usable ?? null;
    if (certificate !== null) return { kind: 'available', certificate };
    const error = entry?.error ?? null;
    return error === null ? { kind: 'initializing' } : { kind: 'unavailable', error };
  }

  /** Drops the identity, its key and its request. Does nothing for an unknown identity. */
  forget(identity: string): void {
    this.#entries.get(identity)?.end();
    if (this.#entries.delete(identity)) this.#deps.log.debug({ identity }, 'certificate.forgotten');
  }

  /** Calls the listener from now on; the returned function ends that. */
  subscribe(listener: CertificateListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** All identities, sorted. */
  identities(): string[] {
    return [...this.#entries.keys()].sort();
  }

  /** The number of identities in each state. */
  counts(): Record<'initializing' | 'available' | 'unavailable', number> {
    const counts = { initializing: 0, available: 0, unavailable: 0 };
    for (const identity of this.#entries.keys()) counts[this.status(identity).kind] += 1;
    return counts;
  }

  /** Hours until the first certificate expires, negative when one has expired; infinite without a certificate. */
  hoursToFirstExpiry(): number {
    let firstMs = Infinity;
    for (const { held } of this.#entries.values()) {
      firstMs = Math.min(firstMs, held?.notAfterMs ?? Infinity);
    }
    return (firstMs - this.#deps.clock.now()) / MS_PER_HOUR;
  }

  /** Records for `weft get certificates`, sorted by identity. */
  records(): CertificateRecord[] {
    return this.#sorted().map((entry) =>
      recordOf(entry.identity, this.#node, entry.held, entry.state),
    );
  }

  /** Entries of the config dump, sorted by identity. */
  dump(): CertificateDump[] {
    return this.#sorted().map((entry) => dumpOf(entry.identity, entry.held, entry.state));
  }

  /** Ends all requests and timers and drops every key. */
  close(): void {
    this.#unsubscribe();
    this.#applying = null;
    for (const entry of this.#entries.values()) entry.end();
    this.#entries.clear();
    this.#listeners.clear();
  }

  /**
   * Applies roots to the first entries at once, to the others in the next turns. Newer roots start from the first entry. One
   * identity then asks for a certificate: its request tells the CA the roots of this node.
   */
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
    // A request that is under way may wait for long. Where all wait, each tells the roots once it has its answer.
    const idle = [...this.#entries.values()].find(({ requesting }) => !requesting);
    idle?.report();
  }

  #create(identity: string, urgency: Urgency): void {
    parseSpiffe(identity);
    if (this.#entries.size >= MAX_IDENTITIES) {
      throw new MeshError(
        'IDENTITY_UNAVAILABLE',
        `the node has ${MAX_IDENTITIES} identities already, the most that are allowed`,
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
      unavailable: (error) => {
        for (const listener of this.#listeners) listener.unavailable(identity, error);
      },
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
