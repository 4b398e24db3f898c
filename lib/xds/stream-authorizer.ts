/** Decides who may open a stream: callers with a valid token, of an account that may read the mesh, within the rate limit. */
import { status } from '@grpc/grpc-js';
import type { Metadata } from '@grpc/grpc-js';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { TokenHolder } from '../identity/token.ts';
import { CallerFailures } from '../grpc/caller-failures.ts';
import type { CallEnd, CountedCall } from '../grpc/caller-failures.ts';
import type { StreamRefusalReason } from './server-metrics.ts';

/** Streams held at once (docs/spec/istiod-ambient.md §0). */
const MAX_STREAMS = 100_000;
/** Failed calls of one address in a second; a burst of twice this passes. A hundred signature checks take about 10 ms. */
export const MAX_FAILURES_PER_SECOND = 100;

/** Dependencies of a {@link StreamAuthorizer}. */
export interface StreamAuthorizerDeps {
  /** The holder of a token. Throws IDENTITY_TOKEN for a bad one, STATE_UNAVAILABLE while no token can be checked. */
  authenticate(token: string): Promise<TokenHolder>;
  /** `namespace/serviceAccount` that may read the mesh. */
  readonly accounts: readonly string[];
  /** New streams accepted in a second; others are refused as RESOURCE_EXHAUSTED. */
  readonly streamsPerSecond: number;
  readonly clock: Clock;
}

/** Why a stream is refused. */
export interface StreamRefusal {
  readonly reason: StreamRefusalReason;
  readonly code: status;
  /** The text the caller receives. */
  readonly text: string;
}

/** The caller, or why it is refused. */
export type StreamDecision =
  | { readonly admitted: true; readonly caller: TokenHolder }
  | { readonly admitted: false; readonly refusal: StreamRefusal };

/**
 * Admits streams. The rate of new streams counts only authenticated callers, so that others cannot use it up. The failed
 * calls of an address have a limit of their own, which callers admitted lately pass by. Calls without a token, which cost nothing, are counted separately from
 * calls with a bad one.
 */
export class StreamAuthorizer {
  readonly #deps: StreamAuthorizerDeps;
  readonly #failures: CallerFailures;
  #second = 0;
  #inSecond = 0;

  constructor(deps: StreamAuthorizerDeps) {
    this.#deps = deps;
    this.#failures = new CallerFailures(MAX_FAILURES_PER_SECOND, deps.clock);
  }

  /** Decides about a call of `peer` (address:port) while `open` streams are held. */
  async decide(metadata: Metadata, peer: string, open: number): Promise<StreamDecision> {
    const token = bearerToken(metadata);
    const call = this.#failures.begin(peer, token);
    if (call === null) {
      const text = 'too many calls without a valid token from this address, try again later';
      return refused('address', status.RESOURCE_EXHAUSTED, text);
    }
    if (token === null) {
      call.end('failed');
      const text = 'a bearer token is required in the authorization header';
      return refused('identity', status.UNAUTHENTICATED, text);
    }
    return this.#authenticated(token, call, open);
  }

  async #authenticated(token: string, call: CountedCall, open: number): Promise<StreamDecision> {
    let end: CallEnd = 'failed';
    try {
      const caller = await this.#deps.authenticate(token);
      const account = `${caller.namespace}/${caller.serviceAccount.name}`;
      if (!this.#deps.accounts.includes(account)) {
        const text = `${account} may not read the mesh: it is not one of the configured accounts`;
        return refused('account', status.PERMISSION_DENIED, text);
      }
      end = 'admitted';
      return this.#fits(open)
        ? { admitted: true, caller }
        : refused('overload', status.RESOURCE_EXHAUSTED, 'too many streams, try again later');
    } catch (error) {
      const away = error instanceof MeshError && error.code === 'STATE_UNAVAILABLE';
      // No token can be checked at present, which is not the caller's failure.
      if (away) end = 'uncounted';
      return away
        ? refused('not-ready', status.UNAVAILABLE, errorText(error))
        : refused('identity', status.UNAUTHENTICATED, errorText(error));
    } finally {
      call.end(end);
    }
  }

  #fits(open: number): boolean {
    const second = Math.floor(this.#deps.clock.monotonic() / 1_000);
    if (second !== this.#second) {
      this.#second = second;
      this.#inSecond = 0;
    }
    this.#inSecond += 1;
    return this.#inSecond <= this.#deps.streamsPerSecond && open < MAX_STREAMS;
  }
}

function refused(reason: StreamRefusalReason, code: status, text: string): StreamDecision {
  return { admitted: false, refusal: { reason, code, text } };
}

/** The token of the `authorization` header; null without one. */
function bearerToken(metadata: Metadata): string | null {
  const header = metadata.get('authorization')[0];
  const match = typeof header === 'string' ? /^Bearer (\S+)$/i.exec(header) : null;
  return match?.[1] ?? null;
}
