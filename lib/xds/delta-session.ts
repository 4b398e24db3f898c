/** One client's delta stream on the server: its subscriptions, and the order in which responses are written. */
import { randomUUID } from 'node:crypto';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { SharedSlices, Steps } from '../async/shared-slices.ts';
import type { Slots } from '../async/slots.ts';
import type { Clock } from '../clock/clock.ts';
import type { BitSet } from '../collections/bit-set.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { TokenSubject } from '../identity/token.ts';
import type { Logger } from '../log/logger.ts';
import type { AffectedKeys } from './key-index.ts';
import type { NackLog } from './nack-log.ts';
import { authorizeNode } from './node-id.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from './type-urls.ts';
import { TypeSubscription } from './type-subscription.ts';
import type { SubscribedType, SubscriptionView } from './type-subscription.ts';
import { decodeRequest } from './wire.ts';
import type { RequestNode } from './wire.ts';

/** The stream as gRPC provides it, with messages as bytes. */
export type DeltaCall = ServerDuplexStream<Buffer, Buffer>;

/** Resource types of one stream; the workload API has three. */
const MAX_TYPES = 16;
/** A client that reads nothing for this long gives its place among the pushed clients to another. */
const MAX_WRITE_MS = 2_000;
/** Bytes that gRPC and TLS copy and encrypt in a millisecond, on a slow machine. */
const WRITTEN_BYTES_PER_MS = 256 * 1024;

/** Dependencies of a {@link DeltaSession}. */
export interface DeltaSessionDeps {
  /** The resources of a type. */
  readonly typeOf: (type: string) => SubscribedType;
  /** Resolves when no push is being applied. */
  readonly settled: () => Promise<void>;
  /** True while a push is applied: nothing may be sent, because a part of a push can say less than the whole. */
  readonly applying: () => boolean;
  readonly slices: SharedSlices;
  /** Places of clients that are written to at the same time. */
  readonly places: Slots;
  readonly nacks: NackLog;
  readonly metrics: DeltaServerMetrics;
  readonly log: Logger;
  readonly clock: Clock;
  /** Called when responses cannot be made; the stream must end then. */
  readonly failed: (error: unknown) => void;
}

/** See {@link DeltaSession.view}. */
export interface StreamView {
  readonly id: string;
  readonly node: string;
  readonly peer: string;
  readonly identity: string;
  readonly connectedAt: string;
  readonly subscriptions: Readonly<Record<string, SubscriptionView>>;
}

/** An authenticated stream. */
export class DeltaSession {
  readonly id = randomUUID();
  readonly #call: DeltaCall;
  readonly #subject: TokenSubject;
  readonly #deps: DeltaSessionDeps;
  readonly #subscriptions = new Map<string, TypeSubscription>();
  readonly #connectedAtMs: number;
  #node: RequestNode | null = null;
  #taking = false;
  #pumping = false;
  /** When the changes came that the client has not been sent; null when it has all. */
  #behindSinceMs: number | null = null;
  readonly #end = Promise.withResolvers<void>();
  #endedAtMs: number | null = null;

  constructor(call: DeltaCall, subject: TokenSubject, deps: DeltaSessionDeps) {
    this.#call = call;
    this.#subject = subject;
    this.#deps = deps;
    this.#connectedAtMs = deps.clock.now();
  }

  /** State of the stream for the admin endpoints. */
  get view(): StreamView {
    const { namespace, serviceAccount } = this.#subject;
    return {
      id: this.id,
      node: this.#node?.id ?? '',
      peer: this.#call.getPeer(),
      identity: `${namespace}/${serviceAccount.name}`,
      connectedAt: new Date(this.#connectedAtMs).toISOString(),
      subscriptions: Object.fromEntries(
        [...this.#subscriptions].map(([type, subscription]) => [type, subscription.view]),
      ),
    };
  }

  /** True when the keys of the client have to be looked at in a push. */
  get onDemand(): boolean {
    return [...this.#subscriptions.values()].some(({ wildcard }) => !wildcard);
  }

  /** When the oldest response was made that the client has not answered; null without one. */
  get outstandingSinceMs(): number | null {
    const since = [...this.#subscriptions.values()].flatMap(
      ({ outstandingSinceMs }) => outstandingSinceMs ?? [],
    );
    return since.length === 0 ? null : Math.min(...since);
  }

  /** When the session ended; null while it lasts. Its stream is open until the client has read what was written before. */
  get endedAtMs(): number | null {
    return this.#endedAtMs;
  }

  /** The slots of a type that this client needs. */
  slots(type: string): readonly BitSet[] {
    return this.#subscriptions.get(type)?.slots ?? [];
  }

  /**
   * Applies a request, if the session has not ended. Resolves when the next one may come. Throws XDS_STREAM or
   * IDENTITY_REFUSED; the stream must end then.
   */
  async take(bytes: Uint8Array): Promise<void> {
    if (this.#isEnded) return;
    const request = decodeRequest(bytes);
    this.#identify(request.node);
    const { typeUrl, nonce, error } = request;
    const subscription = this.#subscription(typeUrl);
    await this.#deps.settled();
    this.#taking = true;
    const acknowledgement = await this.#deps.slices.run(subscription.take(request));
    this.#taking = false;
    if (acknowledgement === 'stale') this.#deps.metrics.stale(typeUrl);
    if (acknowledgement === 'nack') {
      this.#deps.metrics.rejected(typeUrl);
      const node = this.#node?.id ?? '';
      this.#deps.nacks.note({ node, stream: this.id, type: typeUrl, nonce, reason: error ?? '' });
    }
    this.pump();
  }

  /** Notes changes of a type. They are sent with the next {@link pump}. */
  note(type: string, changed: BitSet, affected: AffectedKeys | null): void {
    const subscription = this.#subscriptions.get(type);
    subscription?.note(changed, affected);
    if (subscription?.isOwed === true) this.#behindSinceMs ??= this.#deps.clock.monotonic();
  }

  /** Sends what may be sent, as the client takes it. */
  pump(): void {
    if (this.#pumping || this.#sendable() === null) return;
    this.#sendAll().catch((error: unknown) => {
      if (!this.#isEnded) this.#deps.failed(error);
    });
  }

  /** Drops the subscriptions; nothing is written after this. */
  end(): void {
    this.#endedAtMs ??= this.#deps.clock.monotonic();
    this.#subscriptions.clear();
    this.#end.resolve();
  }

  async #sendAll(): Promise<void> {
    const { places, slices, clock } = this.#deps;
    this.#pumping = true;
    while (this.#sendable() !== null) {
      const leave = await places.take(null);
      const slow = clock.after(MAX_WRITE_MS, leave);
      try {
        const written = await slices.run(this.#send());
        await Promise.race([written.done, this.#end.promise]);
      } finally {
        slow.cancel();
        leave();
      }
    }
    this.#pumping = false;
  }

  /** Writes the next response, if there still is one. `done` resolves when the transport has taken it. */
  // oxlint-disable-next-line require-yield
  *#send(): Steps<{ readonly done: Promise<void> }> {
    const type = this.#sendable();
    const subscription = type === null ? undefined : this.#subscriptions.get(type);
    const now = this.#deps.clock.monotonic();
    const answer = subscription?.next(now) ?? null;
    if (type === null || answer === null) return { done: Promise.resolve() };
    this.#deps.metrics.pushed(type, answer.resources, answer.bytes.length);
    this.#deps.slices.charge(answer.bytes.length / WRITTEN_BYTES_PER_MS);
    const done = new Promise<void>((resolve) => {
      // An error closes the stream, which ends the session.
      this.#call.write(answer.bytes, () => resolve());
    });
    const isOwed = [...this.#subscriptions.values()].some((each) => each.isOwed);
    if (this.#behindSinceMs !== null && !isOwed) {
      this.#deps.metrics.converged(now - this.#behindSinceMs);
      this.#behindSinceMs = null;
    }
    return { done };
  }

  /**
   * The type whose response is next: addresses before policies, as upstream does. Policies wait until the last part of an
   * answer of addresses is written: a client counts a type as complete with its first response, so it is complete with the
   * policies only when it holds every address.
   */
  #sendable(): string | null {
    if (this.#isEnded || this.#taking || this.#deps.applying()) return null;
    const addresses = this.#subscriptions.get(ADDRESS_TYPE);
    if (addresses?.sendable === true) return ADDRESS_TYPE;
    if (addresses?.inParts === true) return null;
    if (this.#subscriptions.get(AUTHORIZATION_TYPE)?.sendable === true) return AUTHORIZATION_TYPE;
    return [...this.#subscriptions].find(([, { sendable }]) => sendable)?.[0] ?? null;
  }

  get #isEnded(): boolean {
    return this.#endedAtMs !== null;
  }

  #identify(node: RequestNode | null): void {
    if (this.#node !== null) return;
    if (node === null) {
      throw new MeshError('XDS_STREAM', 'the first request of a stream must carry its node');
    }
    authorizeNode(this.#subject, node);
    this.#node = node;
    this.#deps.log.info(
      { node: node.id, peer: this.#call.getPeer(), stream: this.id },
      'xds.stream-opened',
    );
  }

  #subscription(type: string): TypeSubscription {
    const known = this.#subscriptions.get(type);
    if (known !== undefined) return known;
    if (type === '') throw new MeshError('XDS_STREAM', 'a request must name its type_url');
    if (this.#subscriptions.size >= MAX_TYPES) {
      throw new MeshError('XDS_STREAM', `more than ${MAX_TYPES} types on one stream`);
    }
    const node = this.#node?.metadata['NODE_NAME'] ?? '';
    const subscription = new TypeSubscription(this.#deps.typeOf(type), node);
    this.#subscriptions.set(type, subscription);
    return subscription;
  }
}
