import { asMeshError } from '../../../lib/errors/mesh-error.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { TunnelCredentials } from '../../../lib/hbone/credentials.ts';
import type { PodContext } from '../pod-context.ts';

type Reporter = 'source' | 'destination';

/** Judges credentials by the revocation lists in force; throws what is wrong with them. */
type AssertUnrevoked = (credentials: TunnelCredentials, reporter: Reporter) => void;

/**
 * Resolves when this process may speak for the identity: it holds its key and a certificate that is neither expired nor
 * revoked, as a handshake would show. Rejects with what is in the way.
 */
export async function prove(
  pod: PodContext,
  identity: string,
  reporter: Reporter,
): Promise<TunnelCredentials> {
  const { certificates, clock, trust } = pod.thread;
  const credentials = await certificates.get(identity);
  credentials.assertValid(clock.now());
  trust.assertUnrevoked(credentials, reporter);
  return credentials;
}

interface Standing {
  readonly reporter: Reporter;
  readonly fail: (error: MeshError) => void;
}

/** The certificates that live connections without a tunnel stand on: a tunnel whose peer is revoked would be cut. */
export class Proofs {
  readonly #assertUnrevoked: AssertUnrevoked;
  readonly #standing = new Map<TunnelCredentials, Set<Standing>>();

  constructor(assertUnrevoked: AssertUnrevoked) {
    this.#assertUnrevoked = assertUnrevoked;
  }

  /** Calls `fail` when the certificate is found revoked, which may be at once. The result ends that. */
  stand(
    credentials: TunnelCredentials,
    reporter: Reporter,
    fail: (error: MeshError) => void,
  ): () => void {
    const standing = { reporter, fail };
    const all = this.#standing.get(credentials) ?? new Set<Standing>();
    this.#standing.set(credentials, all.add(standing));
    const error = this.#judge(credentials, reporter);
    if (error !== null) fail(error);
    return () => {
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

  #judge(credentials: TunnelCredentials, reporter: Reporter): MeshError | null {
    try {
      this.#assertUnrevoked(credentials, reporter);
      return null;
    } catch (error) {
      return asMeshError(error, 'TLS_HANDSHAKE');
    }
  }
}
