/** Delta ADS for ztunnel-like clients (docs/spec/istiod-ambient.md §3), over any source of resources. */
import { randomBytes } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import type { ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import type { TokenHolder } from '../identity/token.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { StreamAdmission } from './admission.ts';
import type { AdmissionDeps, StreamRefusal } from './admission.ts';
import { DeltaSession } from './delta-session.ts';
import type { DeltaCall, StreamView } from './delta-session.ts';
import { deltaServerMetrics } from './server-metrics.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { decodeRequest } from './server-wire.ts';
import { MAX_RESPONSE_BYTES } from './type-subscription.ts';
import type { ResourceSource } from './type-subscription.ts';
import { DELTA_METHOD } from './type-urls.ts';

/** A client that resumes lists a name and a version for everything it holds. */
export const MAX_REQUEST_BYTES = 64 * 1024 * 1024;
/** A stream's greatest age is spread by this part of it, so that clients that came together do not come back together. */
const AGE_SPREAD = 0.1;

/** What the server needs. */
export interface DeltaServerDeps extends AdmissionDeps {
  readonly source: ResourceSource;
  /** False refuses streams, as there is nothing true to tell yet. */
  ready(): boolean;
  /** A stream that is this old, give or take a tenth, is ended in good order. */
  readonly maxStreamAgeMs: number;
  /** A larger answer goes in several; {@link MAX_RESPONSE_BYTES} without. */
  readonly maxResponseBytes?: number;
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
  readonly #admission: StreamAdmission;
  #draining = false;

  constructor(deps: DeltaServerDeps) {
    this.#deps = deps;
    this.#admission = new StreamAdmission(deps);
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
    for (const [call, session] of this.#sessions) {
      if (session.push(changed)) continue;
      session.end();
      const text = 'changes gather and no response is acknowledged; resume on another stream';
      this.#refuse(call, { reason: 'unacknowledged', code: status.RESOURCE_EXHAUSTED, text });
    }
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
    if (this.#draining || !this.#deps.ready()) {
      const text = this.#draining ? 'the server is draining' : 'the server is not ready';
      this.#refuse(call, { reason: 'not-ready', code: status.UNAVAILABLE, text });
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
    const admission = await this.#admission.admit(call.metadata, call.getPeer(), open);
    if (!admission.admitted) {
      this.#refuse(call, admission.refusal);
      return;
    }
    if (isClosed()) return;
    const { caller } = admission;
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

  /** Ends the stream when its age or its token's validity is over; the client resumes, with a token that is valid then. */
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
    // An address beyond its limit does not fill the log either.
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

/** How a stream ends that a request broke. */
function refusalFor(error: unknown): StreamRefusal {
  const text = errorText(error);
  if (!(error instanceof MeshError)) return { reason: 'protocol', code: status.INTERNAL, text };
  if (error.code === 'IDENTITY_REFUSED') {
    return { reason: 'identity', code: status.PERMISSION_DENIED, text };
  }
  return { reason: 'protocol', code: status.INVALID_ARGUMENT, text };
}
