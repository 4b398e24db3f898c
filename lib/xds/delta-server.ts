/** Serves delta ADS to ztunnel-like clients (docs/spec/istiod-ambient.md §3), from any source of resources. */
import { randomBytes } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import type { ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { TokenHolder } from '../identity/token.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { DeltaSession } from './delta-session.ts';
import type { DeltaCall, StreamView } from './delta-session.ts';
import { deltaServerMetrics } from './server-metrics.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { StreamAuthorizer } from './stream-authorizer.ts';
import type { StreamAuthorizerDeps, StreamRefusal } from './stream-authorizer.ts';
import { MAX_RESPONSE_BYTES } from './type-subscription.ts';
import type { ResourceSource } from './type-subscription.ts';
import { DELTA_METHOD } from './type-urls.ts';
import { decodeRequest } from './wire.ts';

/** Largest request: a client that resumes lists the name and version of every resource it holds. */
export const MAX_REQUEST_BYTES = 64 * 1024 * 1024;
/** Random part of a stream's age limit, so that clients that connected together do not reconnect together. */
const AGE_SPREAD = 0.1;

/** Dependencies of a {@link DeltaServer}. */
export interface DeltaServerDeps extends StreamAuthorizerDeps {
  readonly source: ResourceSource;
  /** False refuses streams. */
  ready(): boolean;
  /** A stream of this age, give or take a tenth, is ended in good order. */
  readonly maxStreamAgeMs: number;
  /** A larger answer goes in several responses; default {@link MAX_RESPONSE_BYTES}. */
  readonly maxResponseBytes?: number;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
}

const NOT_READY: StreamRefusal = {
  reason: 'not-ready',
  code: status.UNAVAILABLE,
  text: 'the server is not ready',
};
const DRAINING: StreamRefusal = { ...NOT_READY, text: 'the server is draining' };

const raw = (bytes: Buffer): Buffer => bytes;

/** The gRPC definition of the service. Messages stay bytes, so that the server itself refuses a bad one. */
export const deltaService: ServiceDefinition = {
  deltaAggregatedResources: {
    path: DELTA_METHOD,
    requestStream: true,
    responseStream: true,
    requestSerialize: raw,
    requestDeserialize: raw,
    responseSerialize: raw,
    responseDeserialize: raw,
  },
};

/** Serves subscriptions and pushes changes to the streams. */
export class DeltaServer {
  readonly #deps: DeltaServerDeps;
  readonly #metrics: DeltaServerMetrics;
  readonly #sessions = new Map<DeltaCall, DeltaSession>();
  /** Distinguishes the pushes of this process from those of an earlier one. */
  readonly #run = randomBytes(4).toString('hex');
  #pushes = 0;
  readonly #authorizer: StreamAuthorizer;
  #draining = false;

  constructor(deps: DeltaServerDeps) {
    this.#deps = deps;
    this.#authorizer = new StreamAuthorizer(deps);
    this.#metrics = deltaServerMetrics(deps.metrics, () => this.#sessions.size);
  }

  /** Handlers for {@link deltaService}. */
  handlers(): UntypedServiceImplementation {
    return { deltaAggregatedResources: (call: DeltaCall) => this.#accept(call) };
  }

  /** The open streams. */
  streams(): StreamView[] {
    return [...this.#sessions.values()].map((session) => session.view);
  }

  /** Tells every stream that resources changed or were removed. */
  push(changed: ReadonlyMap<string, ReadonlySet<string>>): void {
    if (changed.size === 0) return;
    this.#pushes += 1;
    for (const [call, session] of this.#sessions) {
      if (session.push(changed)) continue;
      session.end();
      const text =
        'too many changes wait and no response is acknowledged; resume on another stream';
      this.#refuse(call, { reason: 'unacknowledged', code: status.RESOURCE_EXHAUSTED, text });
    }
  }

  /** Refuses new streams and ends the open ones; clients connect again. */
  drain(): void {
    this.#draining = true;
    for (const [call, session] of this.#sessions) {
      session.end();
      call.end();
    }
  }

  #accept(call: DeltaCall): void {
    // A broken stream also closes, so the error needs no handling here.
    call.on('error', (error) =>
      this.#deps.log.debug({ error: errorText(error) }, 'xds.stream-failed'),
    );
    if (this.#draining || !this.#deps.ready()) {
      this.#refuse(call, this.#draining ? DRAINING : NOT_READY);
      return;
    }
    let closed = false;
    const close = (): void => {
      closed = true;
      this.#close(call);
    };
    call.once('close', close);
    call.once('cancelled', close);
    call.once('finish', close);
    void this.#serve(call, () => closed);
  }

  async #serve(call: DeltaCall, isClosed: () => boolean): Promise<void> {
    const open = this.#sessions.size;
    const decision = await this.#authorizer.decide(call.metadata, call.getPeer(), open);
    if (!decision.admitted) {
      this.#refuse(call, decision.refusal);
      return;
    }
    if (isClosed()) return;
    if (this.#draining) {
      this.#refuse(call, DRAINING);
      return;
    }
    const { caller } = decision;
    const { source, log } = this.#deps;
    const session = new DeltaSession(call, caller, {
      source,
      log,
      metrics: this.#metrics,
      version: () => `${this.#run}.${this.#pushes}`,
      maxResponseBytes: this.#deps.maxResponseBytes ?? MAX_RESPONSE_BYTES,
    });
    this.#sessions.set(call, session);
    this.#limitAge(call, session, caller);
    call.on('drain', () => session.resume());
    call.on('data', (bytes: Buffer) => {
      try {
        session.take(decodeRequest(bytes));
      } catch (error) {
        session.end();
        this.#refuse(call, refusalFor(error));
      }
    });
    call.once('end', () => {
      session.end();
      call.end();
    });
  }

  /** Ends the stream at its age limit or when its token expires; the client resumes with a valid token. */
  #limitAge(call: DeltaCall, session: DeltaSession, caller: TokenHolder): void {
    const { clock, log, maxStreamAgeMs } = this.#deps;
    const ageMs = maxStreamAgeMs * (1 + AGE_SPREAD * (2 * Math.random() - 1));
    const validMs = Math.max(0, caller.validUntilMs - clock.now());
    const reason = validMs < ageMs ? 'identity-expired' : 'age';
    const timer = clock.after(Math.min(validMs, ageMs), () => {
      this.#metrics.ended(reason);
      log.info({ node: session.view.node, stream: session.id, reason }, 'xds.stream-ended');
      session.end();
      call.end();
    });
    for (const event of ['close', 'cancelled', 'finish']) call.once(event, () => timer.cancel());
  }

  #refuse(call: DeltaCall, { reason, code, text }: StreamRefusal): void {
    this.#metrics.refused(reason);
    // An address beyond its limit must not fill the log.
    const level = reason === 'address' ? 'debug' : 'warn';
    this.#deps.log[level]({ peer: call.getPeer(), reason, error: text }, 'xds.stream-refused');
    call.emit('error', { code, details: text });
  }

  #close(call: DeltaCall): void {
    const session = this.#sessions.get(call);
    if (session === undefined) return;
    session.end();
    this.#sessions.delete(call);
    this.#deps.log.info({ node: session.view.node, stream: session.id }, 'xds.stream-closed');
  }
}

/** The refusal of a stream after a bad request. */
function refusalFor(error: unknown): StreamRefusal {
  const text = errorText(error);
  if (!(error instanceof MeshError)) return { reason: 'protocol', code: status.INTERNAL, text };
  if (error.code === 'IDENTITY_REFUSED') {
    return { reason: 'identity', code: status.PERMISSION_DENIED, text };
  }
  return { reason: 'protocol', code: status.INVALID_ARGUMENT, text };
}
