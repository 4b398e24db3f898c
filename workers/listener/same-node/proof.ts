import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { TunnelCredentials } from '../../../lib/hbone/credentials.ts';
import type { PeerTrust, TrustReporter } from '../../../lib/hbone/peer-trust.ts';
import type { CertificateStore } from '../tunnel/certificates.ts';

/** The parts of a thread that a proof is made from. */
export interface ProofSources {
  readonly certificates: Pick<CertificateStore, 'get'>;
  readonly clock: Clock;
  readonly trust: PeerTrust;
}

/**
 * Resolves when this process may speak for the identity: it holds its key and a certificate that is neither expired nor
 * revoked and leads to a trusted root, as a handshake would show. Rejects with what is in the way.
 */
export async function prove(
  { certificates, clock, trust }: ProofSources,
  identity: string,
  reporter: TrustReporter,
): Promise<TunnelCredentials> {
  const credentials = await certificates.get(identity);
  credentials.assertValid(clock.now());
  trust.assertTrusted(credentials);
  trust.assertUnrevoked(credentials, reporter);
  return credentials;
}

/** Judges a certificate of ours as peers would; each throws what is wrong with it. */
export type OwnTrust = Pick<PeerTrust, 'assertUnrevoked' | 'assertTrusted'>;

/** Settings of {@link Proofs}. */
export interface ProofOptions {
  readonly clock: Clock;
  /** As for tunnels: how long a connection may run on whose certificate leads to no trusted root any more. */
  readonly distrustGraceMs: number;
}

interface Standing {
  readonly reporter: TrustReporter;
  readonly fail: (error: MeshError) => void;
  /** Ends it after the grace; null while it is trusted. */
  timer: Timer | null;
}

/** The certificates that live connections without a tunnel stand on: a tunnel whose peer is revoked or distrusted would be cut. */
export class Proofs {
  readonly #trust: OwnTrust;
  readonly #options: ProofOptions;
  readonly #standing = new Map<TunnelCredentials, Set<Standing>>();
  /** The credentials whose roots came last, by identity. */
  readonly #latest = new Map<string, TunnelCredentials>();

  constructor(trust: OwnTrust, options: ProofOptions) {
    this.#trust = trust;
    this.#options = options;
  }

  /** Calls `fail` when the certificate is found to be invalid, which may be at once. The result ends the watch. */
  stand(
    credentials: TunnelCredentials,
    reporter: TrustReporter,
    fail: (error: MeshError) => void,
  ): () => void {
    const standing: Standing = { reporter, fail, timer: null };
    const all = this.#standing.get(credentials) ?? new Set<Standing>();
    this.#standing.set(credentials, all.add(standing));
    const error = this.#judge(credentials, reporter);
    if (error !== null) fail(error);
    // The roots may have changed since it was proven.
    const distrusted = this.#distrust(credentials);
    if (distrusted !== null) this.#endLater(standing, distrusted);
    return () => {
      standing.timer?.cancel();
      all.delete(standing);
      if (all.size === 0 && this.#standing.get(credentials) === all) {
        this.#standing.delete(credentials);
      }
    };
  }

  /** Other revocation lists are in force. */
  recheck(): void {
    for (const [credentials, all] of this.#standing) {
      for (const reporter of ['source', 'destination'] as const) {
        const concerned = [...all].filter((standing) => standing.reporter === reporter);
        const error = concerned.length === 0 ? null : this.#judge(credentials, reporter);
        if (error !== null) for (const { fail } of concerned) fail(error);
      }
    }
  }

  /** Other roots are in force for the identity. */
  rootsChanged(latest: TunnelCredentials): void {
    this.#latest.set(latest.identity, latest);
    for (const [credentials, all] of this.#standing) {
      if (credentials.identity !== latest.identity) continue;
      const error = this.#distrust(credentials);
      for (const standing of all) {
        if (error === null) this.#keep(standing);
        else this.#endLater(standing, error);
      }
    }
  }

  /** Nobody here has the identity any more: its credentials are forgotten. */
  drop(identity: string): void {
    this.#latest.delete(identity);
  }

  #endLater(standing: Standing, error: MeshError): void {
    const { clock, distrustGraceMs } = this.#options;
    standing.timer ??= clock.after(distrustGraceMs, () => standing.fail(error));
  }

  /** Roots that were wrong for less than the grace end nothing. */
  #keep(standing: Standing): void {
    standing.timer?.cancel();
    standing.timer = null;
  }

  #distrust(credentials: TunnelCredentials): MeshError | null {
    const latest = this.#latest.get(credentials.identity);
    if (latest === undefined || latest.rootsPem === credentials.rootsPem) return null;
    try {
      this.#trust.assertTrusted(credentials, latest);
      return null;
    } catch (error) {
      return asMeshError(error, 'TLS_PEER_DISTRUSTED');
    }
  }

  #judge(credentials: TunnelCredentials, reporter: TrustReporter): MeshError | null {
    try {
      this.#trust.assertUnrevoked(credentials, reporter);
      return null;
    } catch (error) {
      return asMeshError(error, 'TLS_HANDSHAKE');
    }
  }
}
