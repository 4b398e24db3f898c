/** One client's delta stream on the server: its subscriptions, and the order in which responses are written. */
import { randomUUID } from 'node:crypto';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { MeshError } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import type { TokenSubject } from '../identity/token.ts';
import { authorizeNode } from './node-id.ts';
import type { DeltaServerMetrics } from './server-metrics.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from './type-urls.ts';
import { TypeSubscription } from './type-subscription.ts';
import type { ResourceSource } from './type-subscription.ts';
import { encodeResponse } from './wire.ts';
import type { RequestNode, ServerRequest } from './wire.ts';

/** The stream as gRPC provides it, with messages as bytes. */
export type DeltaCall = ServerDuplexStream<Buffer, Buffer>;

/** Resource types of one stream; the workload API has three. */
const MAX_TYPES = 16;
/**
 * Names owed to a client that acknowledges nothing: twice the objects a control plane holds, to include removed ones. A
 * client beyond the limit is ended and resumes by versions; it costs no memory while it is away.
 */
export const MAX_OWED_NAMES = 400_000;
/** Longest NACK text that is logged. */
const MAX_LOGGED_TEXT = 2_000;

/** Dependencies of a {@link DeltaSession}. */
export interface DeltaSessionDeps {
  readonly source: ResourceSource;
  readonly metrics: DeltaServerMetrics;
  readonly log: Logger;
  /** Version of the whole state, for nonces and responses. */
  readonly version: () => string;
  /** A larger answer goes in several responses. */
  readonly maxResponseBytes: number;
}

/** See {@link DeltaSession.view}. */
export interface StreamView {
  readonly id: string;
  readonly node: string;
  readonly peer: string;
  readonly identity: string;
  readonly subscriptions: Readonly<Record<string, TypeSubscription['view']>>;
}

/** An authenticated stream. */
export class DeltaSession {
  readonly id = randomUUID();
  readonly #call: DeltaCall;
  readonly #subject: TokenSubject;
  readonly #deps: DeltaSessionDeps;
  readonly #subscriptions = new Map<string, TypeSubscription>();
  #node: RequestNode | null = null;
  #blocked = false;
  #ended = false;

  constructor(call: DeltaCall, subject: TokenSubject, deps: DeltaSessionDeps) {
    this.#call = call;
    this.#subject = subject;
    this.#deps = deps;
  }

  /** State of the stream for the admin endpoint. */
  get view(): StreamView {
    const { namespace, serviceAccount } = this.#subject;
    return {
      id: this.id,
      node: this.#node?.id ?? '',
      peer: this.#call.getPeer(),
      identity: `${namespace}/${serviceAccount.name}`,
      subscriptions: Object.fromEntries(
        [...this.#subscriptions].map(([type, subscription]) => [type, subscription.view]),
      ),
    };
  }

  /** Applies a request, if the session has not ended. Throws XDS_STREAM or IDENTITY_REFUSED; the stream must end then. */
  take(request: ServerRequest): void {
    if (this.#ended) return;
    this.#identify(request.node);
    const subscription = this.#subscription(request.typeUrl);
    const acknowledgement = subscription.take(request);
    if (acknowledgement === 'stale') this.#deps.metrics.stale(request.typeUrl);
    if (acknowledgement === 'nack') {
      this.#deps.metrics.rejected(request.typeUrl);
      this.#deps.log.warn(
        {
          node: this.#node?.id,
          type: request.typeUrl,
          nonce: request.nonce,
          reason: request.error?.slice(0, MAX_LOGGED_TEXT),
        },
        'xds.nacked',
      );
    }
    this.#pump();
  }

  /** Notes changes and sends the answers that may be sent. False when the client is owed more than {@link MAX_OWED_NAMES}. */
  push(changed: ReadonlyMap<string, ReadonlySet<string>>): boolean {
    for (const [type, names] of changed) this.#subscriptions.get(type)?.note(names);
    this.#pump();
    return [...this.#subscriptions.values()].every(({ owed }) => owed <= MAX_OWED_NAMES);
  }

  /** Continues to write, once the transport has room again. */
  resume(): void {
    this.#blocked = false;
    this.#pump();
  }

  /** Drops the subscriptions; nothing is written after this. */
  end(): void {
    this.#ended = true;
    this.#subscriptions.clear();
  }

  /**
   * Writes answers while the transport takes them: addresses before policies, as upstream does. Policies wait until the
   * last part of an answer of addresses is written: a client counts a type as complete with its first response, so it is
   * complete with the policies only when it holds every address.
   */
  #pump(): void {
    const types = [ADDRESS_TYPE, AUTHORIZATION_TYPE, ...this.#subscriptions.keys()];
    for (const type of new Set(types)) {
      if (this.#blocked || this.#ended) return;
      const subscription = this.#subscriptions.get(type);
      if (type !== ADDRESS_TYPE && this.#subscriptions.get(ADDRESS_TYPE)?.inParts === true) return;
      const systemVersion = this.#deps.version();
      const nonce = `${systemVersion}/${randomUUID()}`;
      const answer = subscription?.next(nonce) ?? null;
      if (subscription === undefined || answer === null) continue;
      const bytes = encodeResponse({
        ...answer,
        typeUrl: type,
        nonce,
        systemVersion,
        withAliases: !subscription.wildcard,
      });
      this.#deps.metrics.pushed(type, answer.resources.length, bytes.length);
      this.#blocked = !this.#call.write(bytes);
    }
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
    const { source, maxResponseBytes } = this.#deps;
    const subscription = new TypeSubscription(type, source, node, maxResponseBytes);
    this.#subscriptions.set(type, subscription);
    return subscription;
  }
}
