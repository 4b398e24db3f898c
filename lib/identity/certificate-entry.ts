import { Backoff } from '../clock/backoff.ts';
import type { Clock, Timer } from '../clock/clock.ts';
import { MeshError, asMeshError } from '../errors/mesh-error.ts';
import { requestFor } from './csr.ts';
import { stateText } from './certificate-records.ts';
import { renewalDelayMs } from './renewal.ts';
import type { RequestSlots } from './request-slots.ts';
import type { SigningPort, Urgency } from './signing-port.ts';
import { URGENCY_RANK } from './signing-port.ts';
import type { Roots } from './trust-bundle.ts';
import { acceptCertificate, trustProblem } from './workload-certificate.ts';
import type { AcceptedCertificate, WorkloadCertificate } from './workload-certificate.ts';

/** Collaborators of a {@link CertificateEntry}, and the functions that it calls. */
export interface EntryDeps {
  readonly clock: Clock;
  readonly signing: SigningPort;
  readonly slots: RequestSlots;
  readonly random: () => number;
  readonly roots: () => Roots | null;
  /** A certificate came into use. */
  readonly accepted: (accepted: AcceptedCertificate) => void;
  /** The certificate in use stays, with other roots. */
  readonly republished: (certificate: WorkloadCertificate) => void;
  /** An attempt failed; `unavailable` when no usable certificate is held. */
  readonly failed: (error: MeshError, unavailable: boolean) => void;
  /** Those who wait for the certificate must not wait longer. */
  readonly unavailable: (error: MeshError) => void;
}

/** docs/spec/control.md §5.1. */
const BACKOFF = { baseMs: 1_000, maxMs: 150_000, factor: 2, jitter: 0.2 };
const GIVE_UP_GROWING_AFTER_MS = 900_000;

/**
 * After this time without a certificate, waiting connections fail with a reason; the request itself continues. It is shorter than the
 * wait of a connection. The first attempts may fail because another actor has just started.
 */
const PATIENCE_MS = 9_000;

/** The time from a failure to an attempt that does not wait for the backoff. */
const WANTED_RETRY_MS = 1_000;

/** The state of one identity: its certificate, its request under way, its next renewal or retry. */
export class CertificateEntry {
  readonly identity: string;
  readonly #deps: EntryDeps;
  readonly #backoff: Backoff;
  readonly #ended = new AbortController();
  #urgency: Urgency;
  #certificate: WorkloadCertificate | null = null;
  #error: MeshError | null = null;
  /** The last failure of this request, told or not. */
  #attemptError: MeshError | null = null;
  /** When an attempt failed last, by the monotonic clock. */
  #failedMs = -Infinity;
  #requesting = false;
  /** The roots that the last request told the CA. */
  #told: Roots | null = null;
  #firstFailureMs: number | null = null;
  /** Renewal or retry. */
  #next: Timer | null = null;
  #expiry: Timer | null = null;
  /** Runs from the begin of a request until a certificate comes, or a failure is told. */
  #patience: Timer | null = null;
  /** Waits for the time of an attempt that does not wait for the backoff. */
  #wanted: Timer | null = null;

  constructor(identity: string, urgency: Urgency, deps: EntryDeps) {
    this.identity = identity;
    this.#urgency = urgency;
    this.#deps = deps;
    this.#backoff = new Backoff(BACKOFF, deps.random);
  }

  /** The certificate, expired or not; null before the first. */
  get held(): WorkloadCertificate | null {
    return this.#certificate;
  }

  /** The certificate if it may be used now. */
  get usable(): WorkloadCertificate | null {
    const certificate = this.#certificate;
    return certificate !== null && this.#deps.clock.now() < certificate.notAfterMs
      ? certificate
      : null;
  }

  /** The reason why there is no usable certificate; null while the first one is awaited. */
  get error(): MeshError | null {
    if (this.usable !== null) return null;
    if (this.#certificate !== null) return this.#error ?? expired(this.#certificate);
    return this.#error;
  }

  /** The state in Istio's words. */
  get state(): string {
    return stateText(this.usable !== null, this.error);
  }

  /** Begins the first request. */
  start(): void {
    this.#request(this.#urgency);
  }

  /** Makes a request under way more urgent. */
  raise(urgency: Urgency): void {
    if (!this.#requesting || URGENCY_RANK[urgency] >= URGENCY_RANK[this.#urgency]) return;
    this.#urgency = urgency;
    this.#deps.slots.raise(this.identity, urgency);
    this.#deps.signing.raise(this.identity, urgency);
  }

  /**
   * Has a failed request tried again {@link WANTED_RETRY_MS} after its failure, whatever its backoff
   * (docs/decisions/certificate-attempts.md). Does nothing while no attempt has failed, or when no attempt can help.
   */
  retry(urgency: Urgency): void {
    if (this.usable !== null || this.#wanted !== null) return;
    const error = this.error ?? this.#attemptError;
    if (error === null || error.policy.retry === 'never') return;
    const { clock } = this.#deps;
    const waitMs = Math.max(0, this.#failedMs + WANTED_RETRY_MS - clock.monotonic());
    this.#wanted = clock.after(waitMs, () => this.#attempt(urgency));
  }

  /** Publishes the certificate with the new roots; renews it when it does not lead to one of them. */
  rootsChanged(roots: Roots): void {
    const certificate = this.usable;
    if (certificate === null) {
      if (!this.#requesting) this.#request('renewal');
      return;
    }
    // The certificate arrived with these roots while they were applied to other identities.
    if (certificate.rootsPem === roots.pem) return;
    this.#certificate = { ...certificate, rootsPem: roots.pem };
    this.#deps.republished(this.#certificate);
    const problem = trustProblem(certificate, roots, this.#deps.clock.now());
    if (problem !== null && !this.#requesting) this.#request('renewal');
  }

  /** True while a certificate is asked for. */
  get requesting(): boolean {
    return this.#requesting;
  }

  /**
   * Requests another certificate now, so that the CA learns which roots this node trusts. After a request that is under way
   * and told it other ones, another follows by itself.
   */
  report(): void {
    if (!this.#requesting) this.#request('renewal');
  }

  /** Cancels the request and all timers; a late answer is discarded. */
  end(): void {
    this.#ended.abort(new MeshError('IDENTITY_UNAVAILABLE', `${this.identity} was forgotten`));
    this.#deps.slots.leave(this.identity);
    const timers = [this.#next, this.#expiry, this.#patience, this.#wanted];
    for (const timer of timers) timer?.cancel();
  }

  #request(urgency: Urgency): void {
    this.#next?.cancel();
    this.#urgency = urgency;
    this.#requesting = true;
    this.#attemptError = null;
    this.#deps.slots.enter(this.identity, urgency, () => {
      this.#patience = this.#deps.clock.after(PATIENCE_MS, () => this.#endPatience());
      this.#fetch().then(
        (accepted) => this.#succeed(accepted),
        (error: unknown) => this.#fail(asMeshError(error, 'IDENTITY_UNAVAILABLE')),
      );
    });
  }

  async #fetch(): Promise<AcceptedCertificate> {
    const { identity } = this;
    this.#told = this.#deps.roots();
    const { key, csrPem } = await requestFor(identity, this.#told?.certificates ?? []);
    const chain = await this.#deps.signing.request(identity, csrPem, this.#urgency, {
      signal: this.#ended.signal,
      onFailure: (error) => this.#attemptFailed(error),
    });
    const roots = this.#deps.roots();
    if (roots === null) {
      throw new MeshError('IDENTITY_UNAVAILABLE', 'the trust bundle has not been read yet');
    }
    return acceptCertificate({ identity, key }, chain, roots, this.#deps.clock.now());
  }

  #succeed(accepted: AcceptedCertificate): void {
    if (this.#ended.signal.aborted) return;
    this.#settle();
    this.#certificate = accepted.certificate;
    this.#error = null;
    this.#firstFailureMs = null;
    this.#backoff.reset();
    const { clock, random } = this.#deps;
    const { notAfterMs } = accepted.certificate;
    this.#schedule(renewalDelayMs(clock.now(), notAfterMs, random()));
    this.#expiry?.cancel();
    this.#expiry = clock.after(notAfterMs - clock.now(), () => this.#expire());
    this.#deps.accepted(accepted);
    if (this.#told !== null && this.#told !== this.#deps.roots()) this.report();
  }

  #fail(error: MeshError): void {
    if (this.#ended.signal.aborted) return;
    this.#settle();
    this.#failed(error);
    this.#tell(error);
    const now = this.#deps.clock.now();
    this.#firstFailureMs ??= now;
    const grown = now - this.#firstFailureMs >= GIVE_UP_GROWING_AFTER_MS;
    const delay = grown ? BACKOFF.maxMs : this.#backoff.next();
    const usable = this.usable;
    this.#schedule(usable === null ? delay : Math.min(delay, usable.notAfterMs - now));
  }

  #settle(): void {
    this.#requesting = false;
    this.#endPatienceTimer();
    this.#deps.slots.leave(this.identity);
  }

  #endPatienceTimer(): void {
    this.#patience?.cancel();
    this.#patience = null;
  }

  /** An attempt that does not wait for the backoff. */
  #attempt(urgency: Urgency): void {
    this.#wanted = null;
    if (this.usable !== null) return;
    if (!this.#requesting) {
      this.#request(urgency);
      return;
    }
    this.raise(urgency);
    this.#deps.signing.hasten(this.identity);
  }

  /** The request goes on after the failure of an attempt. */
  #attemptFailed(error: MeshError): void {
    if (this.#ended.signal.aborted) return;
    this.#failed(error);
    const awaited = this.#patience !== null && this.#error === null && this.usable === null;
    if (!awaited) this.#tell(error);
  }

  #failed(error: MeshError): void {
    this.#attemptError = error;
    this.#failedMs = this.#deps.clock.monotonic();
    this.#deps.failed(error, this.usable === null);
  }

  /** Tells a failure to those who wait; without a usable certificate it is the state of the identity from now on. */
  #tell(error: MeshError): void {
    this.#endPatienceTimer();
    this.#error = error;
    if (this.usable === null) this.#deps.unavailable(error);
  }

  #endPatience(): void {
    this.#patience = null;
    if (this.usable !== null) return;
    if (this.#attemptError !== null) {
      this.#tell(this.#attemptError);
      return;
    }
    const seconds = PATIENCE_MS / 1000;
    const silence = new MeshError(
      'IDENTITY_UNAVAILABLE',
      `no answer to the certificate request within ${seconds} s; it stays queued`,
    );
    this.#deps.failed(silence, true);
    this.#tell(silence);
  }

  #expire(): void {
    const certificate = this.#certificate;
    if (certificate === null) return;
    const left = certificate.notAfterMs - this.#deps.clock.now();
    if (left > 0) {
      // The wall clock was set back.
      this.#expiry = this.#deps.clock.after(left, () => this.#expire());
      return;
    }
    const reason = this.#error === null ? '' : `; renewal failed: ${this.#error.message}`;
    const error = new MeshError('IDENTITY_EXPIRED', `${expired(certificate).message}${reason}`, {
      cause: this.#error ?? undefined,
    });
    this.#deps.failed(error, true);
    this.#tell(error);
  }

  #schedule(delayMs: number): void {
    this.#next?.cancel();
    this.#next = this.#deps.clock.after(Math.max(0, delayMs), () => this.#request('renewal'));
  }
}

function expired(certificate: WorkloadCertificate): MeshError {
  return new MeshError(
    'IDENTITY_EXPIRED',
    `the certificate expired at ${new Date(certificate.notAfterMs).toISOString()}`,
  );
}
