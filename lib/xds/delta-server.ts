/** Delta ADS for ztunnel-like clients (docs/spec/istiod-ambient.md §3), over any source of resources. */
import { randomBytes } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import type { Metadata, ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import type { Clock } from '../clock/clock.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { TokenSubject } from '../identity/token.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { DeltaSession } from './delta-session.ts';
import type { DeltaCall, StreamView } from './delta-session.ts';
import { deltaServerMetrics } from './server-metrics.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { decodeRequest } from './server-wire.ts';
import type { ResourceSource } from './type-subscription.ts';
import { DELTA_METHOD } from './type-urls.ts';

/** Streams held at once (docs/spec/istiod-ambient.md §0). */
export const MAX_STREAMS = 100_000;
/** A client that resumes lists a name and a version for everything it holds. */
export const MAX_REQUEST_BYTES = 64 * 1024 * 1024;

/** What the server needs. */
export interface DeltaServerDeps {
  readonly source: ResourceSource;
  /** The holder of a token. Throws IDENTITY_TOKEN for a bad one, STATE_UNAVAILABLE while none can be checked. */
  authenticate(token: string): Promise<TokenSubject>;
  /** False refuses streams, as there is nothing true to tell yet. */
  ready(): boolean;
  /** New streams taken in a second; more are told to come back. */
  readonly streamsPerSecond: number;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
}

const raw = (bytes: Buffer): Buffer => bytes;

/** The gRPC definition of the service; messages stay bytes, so that a bad one is answered in our own words. */
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

/** Serves subscriptions and pushes changes to them. */
export class DeltaServer {
  readonly #deps: DeltaServerDeps;
  readonly #metrics: DeltaServerMetrics;
  readonly #sessions = new Map<DeltaCall, DeltaSession>();
  /** Tells the pushes of this process from those of the one before. */
  readonly #run = randomBytes(4).toString('hex');
  #pushes = 0;
  #draining = false;
  #open = 0;
  #second = 0;
  #inSecond = 0;

  constructor(deps: DeltaServerDeps) {
    this.#deps = deps;
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

  /** Tells every stream that resources changed or are gone. */
  push(changed: ReadonlyMap<string, ReadonlySet<string>>): void {
    if (changed.size === 0) return;
    this.#pushes += 1;
    for (const session of this.#sessions.values()) session.push(changed);
  }

  /** Takes no new stream and ends the open ones; clients come back to whoever serves then. */
  drain(): void {
    this.#draining = true;
    for (const [call, session] of this.#sessions) {
      session.end();
      call.end();
    }
  }

  #accept(call: DeltaCall): void {
    // A stream that breaks also closes; there is nothing more to do about the error itself.
    call.on('error', (error) =>
      this.#deps.log.debug({ error: errorText(error) }, 'xds.stream-error'),
    );
    const refusal = this.#refusal();
    if (refusal !== null) {
      this.#metrics.refused(refusal.reason);
      end(call, refusal.code, refusal.text);
      return;
    }
    this.#open += 1;
    let closed = false;
    const close = (): void => {
      if (closed) return;
      closed = true;
      this.#open -= 1;
      this.#close(call);
    };
    call.once('close', close);
    call.once('cancelled', close);
    call.once('finish', close);
    void this.#serve(call, () => closed);
  }

  async #serve(call: DeltaCall, isClosed: () => boolean): Promise<void> {
    let subject: TokenSubject;
    try {
      subject = await this.#deps.authenticate(bearerToken(call.metadata));
    } catch (error) {
      const away = error instanceof MeshError && error.code === 'STATE_UNAVAILABLE';
      this.#fail(call, error, away ? status.UNAVAILABLE : status.UNAUTHENTICATED);
      return;
    }
    if (isClosed()) return;
    const { source, log } = this.#deps;
    const session = new DeltaSession(call, subject, {
      source,
      log,
      metrics: this.#metrics,
      version: () => `${this.#run}.${this.#pushes}`,
    });
    this.#sessions.set(call, session);
    call.on('drain', () => session.resume());
    call.on('data', (bytes: Buffer) => {
      try {
        session.take(decodeRequest(bytes));
      } catch (error) {
        session.end();
        this.#fail(call, error, codeOf(error));
      }
    });
    call.once('end', () => {
      session.end();
      call.end();
    });
  }

  #fail(call: DeltaCall, error: unknown, code: status): void {
    const identity = code === status.UNAUTHENTICATED || code === status.PERMISSION_DENIED;
    this.#metrics.refused(identity ? 'identity' : 'protocol');
    this.#deps.log.warn({ peer: call.getPeer(), error: errorText(error) }, 'xds.stream-refused');
    end(call, code, errorText(error));
  }

  #close(call: DeltaCall): void {
    const session = this.#sessions.get(call);
    if (session === undefined) return;
    session.end();
    this.#sessions.delete(call);
    this.#deps.log.info({ node: session.view.node, stream: session.id }, 'xds.stream-closed');
  }

  #refusal(): { reason: 'not-ready' | 'overload'; code: status; text: string } | null {
    if (this.#draining || !this.#deps.ready()) {
      const text = this.#draining ? 'the server is draining' : 'the server is not ready';
      return { reason: 'not-ready', code: status.UNAVAILABLE, text };
    }
    const second = Math.floor(this.#deps.clock.monotonic() / 1_000);
    if (second !== this.#second) {
      this.#second = second;
      this.#inSecond = 0;
    }
    this.#inSecond += 1;
    if (this.#inSecond > this.#deps.streamsPerSecond || this.#open >= MAX_STREAMS) {
      const text = 'too many streams, come back later';
      return { reason: 'overload', code: status.RESOURCE_EXHAUSTED, text };
    }
    return null;
  }
}

/** The token of the `authorization` header. Throws IDENTITY_TOKEN. */
function bearerToken(metadata: Metadata): string {
  const header = metadata.get('authorization')[0];
  const match = typeof header === 'string' ? /^Bearer (\S+)$/i.exec(header) : null;
  if (match?.[1] === undefined) {
    throw new MeshError('IDENTITY_TOKEN', 'a bearer token is required in the authorization header');
  }
  return match[1];
}

function codeOf(error: unknown): status {
  if (!(error instanceof MeshError)) return status.INTERNAL;
  return error.code === 'IDENTITY_REFUSED' ? status.PERMISSION_DENIED : status.INVALID_ARGUMENT;
}

/** Ends a server stream with a status. */
function end(call: DeltaCall, code: status, details: string): void {
  call.emit('error', { code, details });
}
