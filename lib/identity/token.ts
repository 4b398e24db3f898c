/** Service account tokens in the form of Kubernetes. The local mesh makes them; ca and control-plane verify them. */
import type { KeyObject } from 'node:crypto';
import {
  SignJWT,
  calculateJwkThumbprint,
  createLocalJWKSet,
  errors,
  exportJWK,
  jwtVerify,
} from 'jose';
import type { JSONWebKeySet, JWTPayload } from 'jose';
import * as z from 'zod';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { WatchedFile } from '../files/watched-file.ts';

/** The audience of tokens for the CA and the control plane. */
export const TOKEN_AUDIENCE = 'istio-ca';

/** An object named in token claims. */
export interface ObjectReference {
  readonly name: string;
  readonly uid: string;
}

/** The holder of a token. `pod` and `node` are null in a token that is not bound to a pod. */
export interface TokenSubject {
  readonly namespace: string;
  readonly serviceAccount: ObjectReference;
  readonly pod: ObjectReference | null;
  readonly node: ObjectReference | null;
}

/** The holder of a verified token. */
export interface TokenHolder extends TokenSubject {
  /** From this time on the verifier refuses the token; milliseconds since the epoch. */
  readonly validUntilMs: number;
}

/** Issuer, audience and life of a token. */
export interface TokenTerms {
  readonly issuer: string;
  readonly audience: string;
  readonly issuedAtMs: number;
  readonly lifetimeMs: number;
}

const reference = z.object({ name: z.string().min(1), uid: z.string() });
const claims = z.object({
  sub: z.string(),
  'kubernetes.io': z.object({
    namespace: z.string().min(1),
    node: reference.optional(),
    pod: reference.optional(),
    serviceaccount: reference,
  }),
});

/** Returns the JSON of a JWKS file that verifies tokens of this P-256 key. */
export async function keySetFor(publicKey: KeyObject): Promise<JSONWebKeySet> {
  const jwk = await exportJWK(publicKey);
  const kid = await calculateJwkThumbprint(jwk);
  return { keys: [{ ...jwk, kid, alg: 'ES256', use: 'sig' }] };
}

/** Signs a token (ES256) for the subject. Only the token issuer has the P-256 private key. */
export async function mintToken(
  privateKey: KeyObject,
  publicKey: KeyObject,
  subject: TokenSubject,
  terms: TokenTerms,
): Promise<string> {
  const kid = await calculateJwkThumbprint(await exportJWK(publicKey));
  const issuedAt = Math.floor(terms.issuedAtMs / 1000);
  const { namespace, serviceAccount, pod, node } = subject;
  return new SignJWT({
    'kubernetes.io': {
      namespace,
      ...(node === null ? {} : { node }),
      ...(pod === null ? {} : { pod }),
      serviceaccount: serviceAccount,
    },
  })
    .setProtectedHeader({ alg: 'ES256', kid })
    .setIssuer(terms.issuer)
    .setAudience(terms.audience)
    .setSubject(`system:serviceaccount:${namespace}:${serviceAccount.name}`)
    .setIssuedAt(issuedAt)
    .setNotBefore(issuedAt)
    .setExpirationTime(issuedAt + Math.ceil(terms.lifetimeMs / 1000))
    .sign(privateKey);
}

/** The rules of a verifier. */
export interface TokenVerifierOptions {
  /** Path of the key set; the file is read again after a change. */
  readonly jwksPath: string;
  /** Any of these. */
  readonly audiences: readonly string[];
  /** Null accepts any issuer whose key is in the set. */
  readonly issuer: string | null;
}

/** Allowed difference between the clocks of two machines. */
const CLOCK_TOLERANCE_SECONDS = 10;

/** Verifies tokens against the keys of a file. */
export class TokenVerifier {
  readonly #options: TokenVerifierOptions;
  readonly #clock: Clock;
  readonly #keys: WatchedFile<ReturnType<typeof createLocalJWKSet>>;

  constructor(
    options: TokenVerifierOptions,
    deps: { readonly clock: Clock; readonly log: Pick<Logger, 'info' | 'warn'> },
  ) {
    this.#options = options;
    this.#clock = deps.clock;
    this.#keys = new WatchedFile(options.jwksPath, parseKeySet, deps.log);
  }

  /**
   * Returns the holder of a valid token. Throws IDENTITY_TOKEN with the reason, and with the detail `time` where only a time
   * claim fails (malformed, unknown key, wrong signature,
   * expired, not yet valid, other audience or issuer, no Kubernetes claims), STATE_UNAVAILABLE when no key set could be
   * read yet.
   */
  async verify(token: string): Promise<TokenHolder> {
    const keys = await this.#keys.read();
    let payload: JWTPayload;
    try {
      const result = await jwtVerify(token, keys, {
        algorithms: ['ES256', 'ES384', 'RS256'],
        audience: [...this.#options.audiences],
        clockTolerance: CLOCK_TOLERANCE_SECONDS,
        currentDate: new Date(this.#clock.now()),
        requiredClaims: ['exp', 'sub', 'aud'],
        ...(this.#options.issuer === null ? {} : { issuer: this.#options.issuer }),
      });
      payload = result.payload;
    } catch (error) {
      const time = timeOf(error);
      throw new MeshError('IDENTITY_TOKEN', `the token is refused: ${this.#reason(error)}`, {
        cause: error,
        ...(time === null ? {} : { detail: { time } }),
      });
    }
    const expiresAtSeconds = payload.exp ?? 0;
    return {
      ...subjectOf(payload),
      validUntilMs: (expiresAtSeconds + CLOCK_TOLERANCE_SECONDS) * 1_000,
    };
  }

  #reason(error: unknown): string {
    if (error instanceof errors.JWTExpired) {
      return `it expired at ${when(error.payload.exp)}, ${this.#apart(error.payload.exp, 'ago')}`;
    }
    if (error instanceof errors.JWTClaimValidationFailed) {
      const { claim, payload } = error;
      const value = JSON.stringify(payload[claim]) ?? 'missing';
      if (claim === 'aud') {
        return `its audience is ${value}, wanted ${this.#options.audiences.join(' or ')}`;
      }
      if (claim === 'iss') return `its issuer is ${value}, wanted ${this.#options.issuer ?? 'any'}`;
      if (claim === 'nbf') {
        return `it is not valid before ${when(payload.nbf)}, ${this.#apart(payload.nbf, 'from now')}: the clocks here and at its issuer differ by at least that`;
      }
      return `its claim ${claim} is ${value}`;
    }
    if (error instanceof errors.JWKSNoMatchingKey) return 'it is signed by an unknown key';
    if (error instanceof errors.JWSSignatureVerificationFailed) return 'its signature is wrong';
    return errorText(error);
  }

  /** How far a time is from this machine's, for whoever compares clocks. */
  #apart(seconds: unknown, direction: 'ago' | 'from now'): string {
    const now = this.#clock.now();
    const apart = typeof seconds === 'number' ? Math.abs(Math.round(now / 1000 - seconds)) : 0;
    return `${apart} s ${direction} (the time here is ${new Date(now).toISOString()})`;
  }
}

/** The time claim that a token with a good signature failed; null for any other failure. */
function timeOf(error: unknown): 'exp' | 'nbf' | null {
  if (error instanceof errors.JWTExpired) return 'exp';
  return error instanceof errors.JWTClaimValidationFailed &&
    error.claim === 'nbf' &&
    error.reason === 'check_failed'
    ? 'nbf'
    : null;
}

function subjectOf(payload: JWTPayload): TokenSubject {
  const parsed = claims.safeParse(payload);
  if (!parsed.success) {
    const where = parsed.error.issues.map((issue) => issue.path.join('.')).join(', ');
    throw new MeshError(
      'IDENTITY_TOKEN',
      `the token is refused: claims missing or wrong: ${where}`,
    );
  }
  const kubernetes = parsed.data['kubernetes.io'];
  const expected = `system:serviceaccount:${kubernetes.namespace}:${kubernetes.serviceaccount.name}`;
  if (parsed.data.sub !== expected) {
    throw new MeshError(
      'IDENTITY_TOKEN',
      `the token is refused: its subject ${parsed.data.sub} is not ${expected}`,
    );
  }
  return {
    namespace: kubernetes.namespace,
    serviceAccount: kubernetes.serviceaccount,
    pod: kubernetes.pod ?? null,
    node: kubernetes.node ?? null,
  };
}

function parseKeySet(content: string): ReturnType<typeof createLocalJWKSet> {
  const set = JSON.parse(content) as JSONWebKeySet;
  if (!Array.isArray(set.keys) || set.keys.length === 0) throw new Error('it holds no keys');
  return createLocalJWKSet(set);
}

function when(seconds: unknown): string {
  return typeof seconds === 'number' ? new Date(seconds * 1000).toISOString() : 'no time';
}
