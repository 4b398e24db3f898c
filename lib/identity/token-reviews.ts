import { createHash } from 'node:crypto';
import { decodeJwt } from 'jose';
import * as z from 'zod';
import type { Clock } from '../clock/clock.ts';
import { evictOldest } from '../collections/evict.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { TokenHolder } from './token.ts';
import type { KubernetesClient } from '../kubernetes/client.ts';
import { isCode } from '../kubernetes/status.ts';

/** Longest time that a reviewed token is believed without another review. */
const REVIEW_LIFE_MS = 60_000;

/** Time for the API server's answer about a token; the caller tries again. */
const REVIEW_TIMEOUT_MS = 5_000;

/** Most remembered tokens, above the nodes of a mesh; the one reviewed first is dropped first. */
const MAX_REVIEWS = 10_000;

const PATH = '/apis/authentication.k8s.io/v1/tokenreviews';
const ACCOUNTS = 'system:serviceaccounts';
const USERNAME = /^system:serviceaccount:([^:]+):([^:]+)$/;
const EXTRA = 'authentication.kubernetes.io/';

const review = z.looseObject({
  status: z.looseObject({
    authenticated: z.boolean().default(false),
    error: z.string().optional(),
    audiences: z.array(z.string()).default([]),
    user: z
      .looseObject({
        username: z.string().default(''),
        uid: z.string().default(''),
        groups: z.array(z.string()).default([]),
        extra: z.record(z.string(), z.array(z.string())).default({}),
      })
      .default({ username: '', uid: '', groups: [], extra: {} }),
  }),
});

type ReviewedUser = z.infer<typeof review>['status']['user'];

/** Collaborators of {@link TokenReviews}. */
export interface TokenReviewsDeps {
  readonly client: Pick<KubernetesClient, 'request'>;
  readonly clock: Clock;
}

/**
 * Verifies tokens by the API server's TokenReview. An accepted token is remembered by its hash until it expires, at most a
 * minute: so long its holder goes on while the API server is away, and so long a revoked token is accepted.
 */
export class TokenReviews {
  readonly #audiences: readonly string[];
  readonly #deps: TokenReviewsDeps;
  readonly #known = new Map<string, { readonly holder: TokenHolder; readonly untilMs: number }>();
  readonly #asked = new Map<string, Promise<TokenHolder>>();

  constructor(audiences: readonly string[], deps: TokenReviewsDeps) {
    this.#audiences = audiences;
    this.#deps = deps;
  }

  /** Number of tokens that are remembered. */
  get size(): number {
    return this.#known.size;
  }

  /**
   * Returns the holder of a valid token of a service account. Throws IDENTITY_TOKEN with the reason, STATE_UNAVAILABLE when
   * the API server cannot tell.
   */
  verify(token: string): Promise<TokenHolder> {
    const hash = createHash('sha256').update(token).digest('base64');
    const known = this.#known.get(hash);
    if (known !== undefined && this.#deps.clock.now() < known.untilMs) {
      return Promise.resolve(known.holder);
    }
    this.#known.delete(hash);
    const asked = this.#asked.get(hash);
    if (asked !== undefined) return asked;
    const asking = this.#ask(token, hash).finally(() => this.#asked.delete(hash));
    this.#asked.set(hash, asking);
    return asking;
  }

  async #ask(token: string, hash: string): Promise<TokenHolder> {
    const { clock } = this.#deps;
    const { status } = review.parse(await this.#review(token));
    if (!status.authenticated) throw refused(`${status.error ?? 'no reason'}${this.#times(token)}`);
    if (!this.#audiences.some((audience) => status.audiences.includes(audience))) {
      throw refused(
        `its audience is ${status.audiences.join(', ') || 'not told'}, wanted ${this.#audiences.join(' or ')}`,
      );
    }
    const latestMs = clock.now() + REVIEW_LIFE_MS;
    const expiresMs = (timesOf(token).exp ?? Infinity) * 1_000;
    const validUntilMs = Number.isFinite(expiresMs) ? expiresMs : latestMs;
    const holder = { ...subjectOf(status.user), validUntilMs };
    this.#known.set(hash, { holder, untilMs: Math.min(latestMs, validUntilMs) });
    evictOldest(this.#known, MAX_REVIEWS);
    return holder;
  }

  async #review(token: string): Promise<unknown> {
    try {
      return await this.#deps.client.request({
        method: 'POST',
        path: PATH,
        body: {
          apiVersion: 'authentication.k8s.io/v1',
          kind: 'TokenReview',
          spec: { token, audiences: this.#audiences },
        },
        attempts: 1,
        signal: AbortSignal.timeout(REVIEW_TIMEOUT_MS),
      });
    } catch (error) {
      // A refusal is about the CA's own rights, never about the caller.
      const away = isCode(error, 'KUBERNETES_UNAVAILABLE', 'KUBERNETES_REFUSED');
      const timedOut = error instanceof Error && error.name === 'TimeoutError';
      if (!away && !timedOut) throw error;
      throw new MeshError(
        'STATE_UNAVAILABLE',
        `the API server cannot review the token: ${errorText(error)}`,
        { cause: error },
      );
    }
  }

  /** The times of a refused token, where they explain it. Nobody has verified them. */
  #times(token: string): string {
    const { exp, nbf } = timesOf(token);
    const nowMs = this.#deps.clock.now();
    const here = `the time here is ${new Date(nowMs).toISOString()}`;
    const apart = (seconds: number): number => Math.abs(Math.round(nowMs / 1_000 - seconds));
    if (exp !== undefined && exp * 1_000 < nowMs)
      return `; it expired ${apart(exp)} s ago (${here})`;
    if (nbf !== undefined && nbf * 1_000 > nowMs) {
      return `; it is valid in ${apart(nbf)} s (${here}): the clocks here and at its issuer differ by at least that`;
    }
    return '';
  }
}

function subjectOf({
  username,
  uid,
  groups,
  extra,
}: ReviewedUser): Omit<TokenHolder, 'validUntilMs'> {
  const [, namespace, name] = USERNAME.exec(username) ?? [];
  if (!groups.includes(ACCOUNTS) || namespace === undefined || name === undefined) {
    throw refused(`${JSON.stringify(username)} is no service account`);
  }
  return {
    namespace,
    serviceAccount: { name, uid },
    pod: reference(extra, 'pod'),
    node: reference(extra, 'node'),
  };
}

function reference(
  extra: ReviewedUser['extra'],
  what: 'pod' | 'node',
): { readonly name: string; readonly uid: string } | null {
  const name = extra[`${EXTRA}${what}-name`]?.[0];
  const uid = extra[`${EXTRA}${what}-uid`]?.[0];
  return name === undefined || name === '' ? null : { name, uid: uid ?? '' };
}

/** The times in a token's claims; none when it is no JWT. */
function timesOf(token: string): { readonly exp?: number; readonly nbf?: number } {
  try {
    const { exp, nbf } = decodeJwt(token);
    return { ...(exp === undefined ? {} : { exp }), ...(nbf === undefined ? {} : { nbf }) };
  } catch {
    // The API server decides; the times only explain its answer.
    return {};
  }
}

function refused(why: string): MeshError {
  return new MeshError('IDENTITY_TOKEN', `the token is refused: ${why}`);
}
