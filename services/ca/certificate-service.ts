/** CreateCertificate: authenticate, authorise, check the request, sign. */
import { status } from '@grpc/grpc-js';
import type {
  Metadata,
  ServerUnaryCall,
  UntypedServiceImplementation,
  sendUnaryData,
} from '@grpc/grpc-js';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { SignRequest, SignResponse } from '../../lib/identity/ca-protocol.ts';
import type { AltName } from '../../lib/identity/subject-alt-name.ts';
import type { TokenSubject, TokenVerifier } from '../../lib/identity/token.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Authority, AuthoritySource } from './authority.ts';
import { decideGrant, decideLifetime } from './authorize.ts';
import type { Grant, GrantRules } from './authorize.ts';
import type { CallerRates, Gate } from '../../lib/async/gate.ts';
import { callerAddress } from '../../lib/grpc/caller-failures.ts';
import type { CallEnd, CallerFailures } from '../../lib/grpc/caller-failures.ts';
import { BACKDATE_MS } from './limits.ts';
import type { CaMetrics, RefusalReason } from './metrics.ts';
import type { Holders } from './holders.ts';
import type { PodRegistry } from './pods.ts';
import type { Issued, Signer } from './signing-pool.ts';
import type { FollowedMesh } from './followed-mesh.ts';

/** Collaborators of the {@link CertificateService}. */
export interface CertificateServiceDeps {
  readonly clock: Clock;
  readonly log: Pick<Logger, 'info' | 'warn' | 'error'>;
  readonly metrics: CaMetrics;
  readonly gate: Gate;
  readonly callers: CallerRates;
  /** Failed calls, by address. */
  readonly failures: CallerFailures;
  readonly verifier: Pick<TokenVerifier, 'verify'>;
  readonly pods: PodRegistry;
  readonly mesh: Pick<FollowedMesh, 'current'>;
  readonly authority: Pick<AuthoritySource, 'current'>;
  readonly signer: Signer;
  readonly holders: Pick<Holders, 'note'>;
}

/** Rules and limits of certificates. Milliseconds. */
export interface IssueRules extends Omit<GrantRules, 'trustDomain' | 'trustDomainAliases'> {
  readonly defaultLifetimeMs: number;
  readonly maxLifetimeMs: number;
}

/** A refusal: its message goes to the caller, its detail to the operator. */
class Refusal extends Error {
  readonly reason: RefusalReason;
  readonly code: status;
  readonly detail: string;

  constructor(reason: RefusalReason, code: status, told: string, detail: string) {
    super(told);
    this.reason = reason;
    this.code = code;
    this.detail = detail;
  }
}

/** Istio's opaque texts: they tell a caller nothing about accounts, pods or nodes. */
const NOT_AUTHENTICATED = 'request authenticate failure';
const NOT_AUTHORISED = 'request impersonation authentication failure';

/** Handles certificate requests. */
export class CertificateService {
  readonly #rules: IssueRules;
  readonly #deps: CertificateServiceDeps;

  constructor(rules: IssueRules, deps: CertificateServiceDeps) {
    this.#rules = rules;
    this.#deps = deps;
  }

  /** The handlers for grpc-js. */
  handlers(): UntypedServiceImplementation {
    return {
      createCertificate: (
        call: ServerUnaryCall<SignRequest, SignResponse>,
        reply: sendUnaryData<SignResponse>,
      ) => {
        this.#answer(call.request, call.metadata, call.getPeer()).then(
          (response) => reply(null, response),
          (error: unknown) => reply(replyError(error)),
        );
      },
    };
  }

  async #answer(request: SignRequest, metadata: Metadata, peer: string): Promise<SignResponse> {
    const { gate, metrics } = this.#deps;
    metrics.requested();
    const entered = gate.enter();
    let caller: TokenSubject | null = null;
    try {
      if (!entered) throw overloaded('limit reached');
      caller = await this.#identify(metadata, peer);
      return await this.#issue(request, caller, peer);
    } catch (error) {
      throw this.#refused(error, request, caller, peer);
    } finally {
      if (entered) gate.leave({ uncounted: caller === null });
    }
  }

  /**
   * Authenticates the caller, unless its address has failed too often: to check a signature is work, and anybody may ask
   * for it.
   */
  async #identify(metadata: Metadata, peer: string): Promise<TokenSubject> {
    const header = metadata.get('authorization')[0];
    const match = typeof header === 'string' ? /^bearer +(\S+)$/i.exec(header) : null;
    const token = match?.[1] ?? null;
    const call = this.#deps.failures.begin(peer, token);
    if (call === null) {
      throw overloaded(`too many calls without a valid token from ${callerAddress(peer)}`);
    }
    let end: CallEnd = 'uncounted';
    try {
      const caller = await this.#authenticate(token);
      end = 'admitted';
      return caller;
    } catch (error) {
      // A call without a token costs nothing. While the key set is missing, a failure says nothing about the caller.
      const isBad = error instanceof Refusal && error.reason === 'bad_token';
      if (isBad && error.code !== status.UNAVAILABLE) end = 'failed';
      throw error;
    } finally {
      call.end(end);
    }
  }

  async #issue(request: SignRequest, caller: TokenSubject, peer: string): Promise<SignResponse> {
    const name = this.#rateOf(caller);
    if (!this.#deps.callers.allows(name)) throw overloaded(`too many requests of ${name}`);
    const grant = this.#authorise(caller, request.impersonated);
    const authority = this.#deps.authority.current;
    const notAfterMs = this.#notAfter(request.validitySeconds, authority);
    const issued = await this.#sign(request.csr, grant.names, notAfterMs, authority);
    await this.#deps.holders.note(this.#holderOf(caller), issued.trustedRoots, notAfterMs);
    this.#deps.metrics.issued();
    this.#deps.log.info(
      {
        serial: issued.serial,
        identity: grant.identity,
        names: grant.names.map(({ value }) => value),
        ...auditOf(caller),
        notAfter: new Date(notAfterMs).toISOString(),
        peer,
      },
      'certificate.issued',
    );
    return { chain: [issued.certificatePem, ...authority.intermediates, authority.rootsPem] };
  }

  async #sign(
    csrPem: string,
    names: readonly AltName[],
    notAfterMs: number,
    { issuer }: Authority,
  ): Promise<Issued> {
    try {
      return await this.#deps.signer.sign({
        csrPem,
        names,
        notBeforeMs: this.#deps.clock.now() - BACKDATE_MS,
        notAfterMs,
        issuerPem: issuer.certificate.toString(),
        key: issuer.key,
      });
    } catch (error) {
      const { code, message } = asMeshError(error, 'IDENTITY_UNAVAILABLE');
      if (code === 'IDENTITY_INVALID') {
        throw new Refusal('bad_csr', status.INVALID_ARGUMENT, message, message);
      }
      if (code === 'STATE_UNAVAILABLE') throw overloaded(message);
      throw error;
    }
  }

  /** Names the callers that share a rate: the pods of a node must not use up the rate of the node, which asks for all of them. */
  #rateOf({ namespace, serviceAccount, node }: TokenSubject): string {
    const account = `${namespace}/${serviceAccount.name}`;
    if (node === null) return account;
    const isNode = this.#rules.trustedNodeAccounts.includes(account);
    return isNode ? `node ${node.name}` : `the pods of node ${node.name}`;
  }

  /** Names the holder of a certificate, whose roots a rotation waits for. */
  #holderOf({ namespace, serviceAccount, node }: TokenSubject): string {
    const account = `${namespace}/${serviceAccount.name}`;
    if (node === null) return account;
    const isNode = this.#rules.trustedNodeAccounts.includes(account);
    return isNode ? node.name : `${account} on ${node.name}`;
  }

  async #authenticate(token: string | null): Promise<TokenSubject> {
    if (token === null) {
      throw new Refusal('no_token', status.UNAUTHENTICATED, NOT_AUTHENTICATED, 'no bearer token');
    }
    try {
      return await this.#deps.verifier.verify(token);
    } catch (error) {
      if (error instanceof MeshError && error.code === 'STATE_UNAVAILABLE') {
        throw new Refusal('bad_token', status.UNAVAILABLE, 'not ready', error.message);
      }
      const detail = errorText(error);
      // The signature is good, so that the holder may know by how much the clocks differ.
      const timed = error instanceof MeshError && error.detail['time'] !== undefined;
      const told = timed ? `${NOT_AUTHENTICATED}: ${detail}` : NOT_AUTHENTICATED;
      throw new Refusal('bad_token', status.UNAUTHENTICATED, told, detail);
    }
  }

  #authorise(caller: TokenSubject, impersonated: string | null): Extract<Grant, { granted: true }> {
    const { pods, mesh } = this.#deps;
    const grant = decideGrant(caller, impersonated, { ...this.#rules, ...mesh.current }, pods);
    if (grant.granted) return grant;
    throw new Refusal(grant.reason, status.UNAUTHENTICATED, NOT_AUTHORISED, grant.detail);
  }

  #notAfter(requestedSeconds: number, { chainExpiresMs }: Authority): number {
    const { defaultLifetimeMs: defaultMs, maxLifetimeMs: maxMs } = this.#rules;
    const lifetime = decideLifetime(requestedSeconds, { defaultMs, maxMs });
    if ('tooLongMs' in lifetime) {
      const text = `requested TTL ${lifetime.tooLongMs / 1000}s is greater than the longest, ${maxMs / 1000}s`;
      throw new Refusal('bad_ttl', status.INVALID_ARGUMENT, text, text);
    }
    const now = this.#deps.clock.now();
    if (chainExpiresMs <= now) {
      throw new Refusal(
        'sign_failure',
        status.INTERNAL,
        'the CA cannot sign',
        'the signing certificate has expired',
      );
    }
    return Math.min(now + lifetime.lifetimeMs, chainExpiresMs);
  }

  /** Counts and logs a failure with its true reason; returns the error for the caller. */
  #refused(error: unknown, request: SignRequest, caller: TokenSubject | null, peer: string): Error {
    const refusal =
      error instanceof Refusal
        ? error
        : new Refusal('sign_failure', status.INTERNAL, 'the CA cannot sign', errorText(error));
    this.#deps.metrics.refused(refusal.reason);
    const fields = {
      reason: refusal.reason,
      detail: refusal.detail,
      identity: request.impersonated,
      ...(caller === null ? { caller: null } : auditOf(caller)),
      peer,
    };
    if (refusal.reason === 'sign_failure') {
      this.#deps.log.error({ ...fields, error }, 'certificate.request-failed');
    } else {
      this.#deps.log.warn(fields, 'certificate.request-refused');
    }
    return refusal;
  }
}

function overloaded(detail: string): Refusal {
  return new Refusal('overloaded', status.RESOURCE_EXHAUSTED, 'too many requests', detail);
}

/** The fields of an audit record that name the caller. */
function auditOf(caller: TokenSubject): Readonly<Record<string, string | null>> {
  return {
    caller: `${caller.namespace}/${caller.serviceAccount.name}`,
    pod: caller.pod?.name ?? null,
    node: caller.node?.name ?? null,
  };
}

function replyError(error: unknown): { code: status; details: string } {
  if (error instanceof Refusal) return { code: error.code, details: error.message };
  return { code: status.INTERNAL, details: 'the CA cannot sign' };
}
