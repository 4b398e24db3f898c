/** Serves delta ADS to ztunnel-like clients (docs/spec/istiod-ambient.md §3), from any source of resources. */
import { randomBytes } from 'node:crypto';
import { status } from '@grpc/grpc-js';
import type { ServiceDefinition, UntypedServiceImplementation } from '@grpc/grpc-js';
import { SharedSlices } from '../async/shared-slices.ts';
import type { Steps } from '../async/shared-slices.ts';
import { Slots } from '../async/slots.ts';
import type { Timer } from '../clock/clock.ts';
import { BitSet } from '../collections/bit-set.ts';
import { MeshError, errorText } from '../errors/mesh-error.ts';
import { resetCall } from '../grpc/reset-call.ts';
import type { TokenHolder } from '../identity/token.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { DeltaSession } from './delta-session.ts';
import type { DeltaCall, StreamView } from './delta-session.ts';
import { AffectedKeys } from './key-index.ts';
import { NackLog } from './nack-log.ts';
import type { Nack } from './nack-log.ts';
import { ResourceTable } from './resource-table.ts';
import { deltaServerMetrics } from './server-metrics.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { SharedAnswers } from './shared-answers.ts';
import { StreamAuthorizer } from './stream-authorizer.ts';
import type { StreamAuthorizerDeps, StreamRefusal } from './stream-authorizer.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE, DELTA_METHOD } from './type-urls.ts';
import type { ResourceType } from './type-urls.ts';
import type { SubscribedType } from './type-subscription.ts';
import type { ServedResource } from './wire.ts';

/** Largest request: a client that resumes lists the name and version of every resource it holds. */
export const MAX_REQUEST_BYTES = 64 * 1024 * 1024;
/** Random part of a stream's age limit, so that clients that connected together do not reconnect together. */
const AGE_SPREAD = 0.1;
/** Longest time that pushes and requests hold the event loop; what gRPC and TLS do with the bytes comes on top. */
const SLICE_MS = 8;
/** Resources that are taken over in one step of a push. */
const RESOURCES_PER_STEP = 32;
/** First requests that are read at the same time. Those of clients that resume have megabytes. */
const MAX_OPENING = 16;
/** A client that sends its first request more slowly than this no longer keeps others waiting. */
const OPENING_LIMIT_MS = 10_000;
/**
 * A client that does not acknowledge a response for this long is ended; it resumes by versions. A client needs
 * milliseconds, and until then it holds at most one response and some bits of memory.
 */
export const ACK_LIMIT_MS = 120_000;
/** How often clients and kept answers are looked at. A stream that is still open this long after its end is cut off. */
const LOOK_MS = 10_000;
/** Answers that no client used for this long are dropped. */
const KEEP_ANSWERS_MS = 30_000;

/** Resources by type and name. */
export interface ResourceSource {
  get(type: ResourceType, name: string): ServedResource | undefined;
}

/** Names of changed and removed resources, by type. */
export type ChangedNames = ReadonlyMap<ResourceType, ReadonlySet<string>>;

/** Dependencies of a {@link DeltaServer}. */
export interface DeltaServerDeps extends StreamAuthorizerDeps {
  readonly source: ResourceSource;
  /** False refuses streams. */
  ready(): boolean;
  /** A stream of this age, give or take a tenth, is ended in good order. */
  readonly maxStreamAgeMs: number;
  /** Clients that are written to at the same time. */
  readonly pushThrottle: number;
  /** A larger answer goes in several responses; default 512 KiB. */
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
const UNACKNOWLEDGED: StreamRefusal = {
  reason: 'unacknowledged',
  code: status.RESOURCE_EXHAUSTED,
  text: `a response was not acknowledged for ${ACK_LIMIT_MS / 1_000} s; resume on another stream`,
};

const raw = (bytes: Buffer): Buffer => bytes;

/** The gRPC definition of the service. Messages stay bytes, so that clients share them and the server itself refuses a bad one. */
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
  readonly #slices = new SharedSlices(SLICE_MS);
  readonly #places: Slots;
  readonly #opening: Slots;
  readonly #nacks: NackLog;
  readonly #types: ReadonlyMap<string, SubscribedType>;
  /** Distinguishes the pushes of this process from those of an earlier one. */
  readonly #run = randomBytes(4).toString('hex');
  #pushes = 0;
  #answers = 0;
  #applying = false;
  /** The pushes one after another. */
  #pushed: Promise<void> = Promise.resolve();
  readonly #authorizer: StreamAuthorizer;
  readonly #look: Timer;
  #draining = false;

  constructor(deps: DeltaServerDeps) {
    this.#deps = deps;
    const { clock } = deps;
    this.#authorizer = new StreamAuthorizer(deps);
    this.#places = new Slots(() => deps.pushThrottle, clock);
    this.#opening = new Slots(() => MAX_OPENING, clock);
    this.#nacks = new NackLog(deps);
    this.#metrics = deltaServerMetrics(deps.metrics, {
      streams: () => this.#sessions.size,
      waiting: () => this.#places.waiting,
      keptBytes: () =>
        [...this.#types.values()].reduce((sum, type) => sum + type.answers.keptBytes, 0),
    });
    this.#types = new Map(
      [ADDRESS_TYPE, AUTHORIZATION_TYPE].map((type) => [type, this.#newType(type)]),
    );
    this.#look = clock.every(LOOK_MS, () => this.#lookAfterClients());
  }

  /** Handlers for {@link deltaService}. */
  handlers(): UntypedServiceImplementation {
    return { deltaAggregatedResources: (call: DeltaCall) => this.#accept(call) };
  }

  /** The number of open streams. */
  get size(): number {
    return this.#sessions.size;
  }

  /** The open streams. Streams may open and close while the caller goes through them. */
  *streams(): Generator<StreamView> {
    for (const session of this.#sessions.values()) yield session.view;
  }

  /** The last refusals of clients, oldest first. */
  get nacks(): readonly Nack[] {
    return this.#nacks.nacks;
  }

  /** The resources as clients see them. */
  resources(type: ResourceType): Iterable<ServedResource> {
    return this.#types.get(type)?.table.resources() ?? [];
  }

  /**
   * Takes over the named resources from the source, then sends them to the clients. The first push names every resource.
   * Resolves when every client knows what it is owed, not when it has it. Clients see the push as a whole.
   */
  push(changed: ChangedNames): Promise<void> {
    const push = this.#pushed.then(() => this.#push(changed));
    // The caller handles the failure; the next push begins in every case.
    this.#pushed = push.catch(() => undefined);
    return push;
  }

  /** Refuses new streams and ends the open ones; clients connect again. */
  drain(): void {
    this.#draining = true;
    this.#look.cancel();
    for (const [call, session] of this.#sessions) {
      session.end();
      call.end();
    }
  }

  #newType(type: string): SubscribedType {
    const { clock, maxResponseBytes } = this.#deps;
    const table = new ResourceTable();
    const answers = new SharedAnswers(type, {
      table,
      nonce: () => `${this.#run}.${this.#pushes}/${(this.#answers += 1)}`,
      version: () => `${this.#run}.${this.#pushes}`,
      encoded: () => this.#metrics.encoded(type),
      nowMs: () => clock.monotonic(),
      ...(maxResponseBytes === undefined ? {} : { maxBytes: maxResponseBytes }),
    });
    return { table, answers };
  }

  async #push(changed: ChangedNames): Promise<void> {
    if ([...changed.values()].every(({ size }) => size === 0)) return;
    this.#pushes += 1;
    this.#applying = true;
    try {
      for (const [type, names] of changed) await this.#slices.run(this.#apply(type, names));
    } finally {
      this.#applying = false;
    }
    await this.#slices.run(this.#pumpAll());
    for (const [type, { table }] of this.#types) {
      if (table.hasMuchGone) await this.#slices.run(table.reclaim(this.#slotsInUse(type)));
    }
  }

  *#apply(type: ResourceType, names: ReadonlySet<string>): Steps {
    const served = this.#types.get(type);
    if (served === undefined) return;
    const slots = new BitSet();
    const anyOnDemand = [...this.#sessions.values()].some(({ onDemand }) => onDemand);
    const affected = anyOnDemand ? new AffectedKeys() : null;
    let taken = 0;
    for (const name of names) {
      const resource = this.#deps.source.get(type, name) ?? null;
      const slot = served.table.apply(name, resource, affected);
      if (slot !== null) slots.add(slot);
      taken += 1;
      if (taken % RESOURCES_PER_STEP === 0) yield;
    }
    served.answers.drop(slots);
    for (const session of this.#sessions.values()) {
      session.note(type, slots, affected);
      yield;
    }
  }

  *#pumpAll(): Steps {
    for (const session of this.#sessions.values()) {
      session.pump();
      yield;
    }
  }

  *#slotsInUse(type: string): Generator<BitSet> {
    for (const session of this.#sessions.values()) yield* session.slots(type);
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
    const closed = Promise.withResolvers<void>();
    let isClosed = false;
    const close = (): void => {
      isClosed = true;
      closed.resolve();
      this.#close(call);
    };
    call.once('close', close);
    call.once('cancelled', close);
    call.once('finish', close);
    void this.#serve(call, { isClosed: () => isClosed, closed: closed.promise });
  }

  async #serve(
    call: DeltaCall,
    { isClosed, closed }: { readonly isClosed: () => boolean; readonly closed: Promise<void> },
  ): Promise<void> {
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
    const session = this.#openSession(call, decision.caller);
    const opened = await this.#opening.take(null);
    const slow = this.#deps.clock.after(OPENING_LIMIT_MS, opened);
    const release = (): void => {
      slow.cancel();
      opened();
    };
    void closed.then(release);
    if (isClosed()) return;
    call.on('data', (bytes: Buffer) => {
      // One request after another: gRPC holds back the next, and the client's flow control those after it.
      call.pause();
      session
        .take(bytes)
        .then(() => call.resume())
        .catch((error: unknown) => this.#cut(call, session, refusalFor(error)))
        .finally(release);
    });
    call.once('end', () => {
      session.end();
      call.end();
    });
  }

  #openSession(call: DeltaCall, caller: TokenHolder): DeltaSession {
    const { log, clock } = this.#deps;
    const session = new DeltaSession(call, caller, {
      typeOf: (type) => this.#types.get(type) ?? this.#newType(type),
      settled: async () => {
        while (this.#applying) await this.#pushed;
      },
      applying: () => this.#applying,
      slices: this.#slices,
      places: this.#places,
      nacks: this.#nacks,
      metrics: this.#metrics,
      log,
      clock,
      failed: (error) => this.#cut(call, session, refusalFor(error)),
    });
    this.#sessions.set(call, session);
    this.#limitAge(call, session, caller);
    return session;
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

  /** Ends clients that answer nothing, cuts off those that do not read even that, and drops answers that nobody uses. */
  #lookAfterClients(): void {
    const nowMs = this.#deps.clock.monotonic();
    for (const [call, session] of this.#sessions) {
      const { outstandingSinceMs: sinceMs, endedAtMs } = session;
      if (endedAtMs !== null) {
        if (nowMs - endedAtMs >= LOOK_MS) resetCall(call);
      } else if (sinceMs !== null && nowMs - sinceMs > ACK_LIMIT_MS) {
        this.#cut(call, session, UNACKNOWLEDGED);
      }
    }
    for (const { answers } of this.#types.values()) answers.dropUnused(nowMs - KEEP_ANSWERS_MS);
  }

  #cut(call: DeltaCall, session: DeltaSession, refusal: StreamRefusal): void {
    session.end();
    this.#refuse(call, refusal);
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
