import type { Counter } from 'prom-client';
import { pause } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { SecureClient } from '../grpc/client.ts';
import type { Logger } from '../log/logger.ts';
import type { MetricRegistry } from '../metrics/registry.ts';
import { runDeltaStream } from './delta-stream.ts';
import type { SendRequest } from './delta-stream.ts';
import type { XdsNodeOptions } from './node.ts';
import { RECONNECT_BASE_MS, STREAM_SOUND_MS, nextAttempt } from './reconnect.ts';
import { Subscriptions, isResourceType } from './subscriptions.ts';
import type { DemandedNames, ResourceFailure, ResourceChanges } from './subscriptions.ts';
import { ADDRESS_TYPE } from './type-urls.ts';
import type { ResourceType } from './type-urls.ts';
import type { DeltaResponse } from './wire.ts';

/** Largest message accepted: a big mesh arrives in one message (docs/spec/control.md §2). */
export const XDS_MESSAGE_BYTES_MAX = 200 * 1024 * 1024;

/** Names in one request on a stream: a message of this size delays no answer. */
const DEMAND_BYTES_MAX = 128 * 1024;

/** Keeps the resources that the client receives. */
export interface ResourceSink {
  /** Name → version of every held resource, sent when a stream opens. */
  versions(type: ResourceType): ReadonlyMap<string, string>;
  /**
   * Stores the good resources, then applies the removals, in order; resolves with the refused resources. The bytes are
   * valid only during the call.
   */
  apply(type: ResourceType, response: ResourceChanges): Promise<readonly ResourceFailure[]>;
}

/** Dependencies of a {@link DeltaClient}. */
export interface DeltaClientDeps {
  /** Opens a channel for one stream; it is closed with the stream. An error counts as a failed connection. */
  readonly open: () => SecureClient;
  readonly node: XdsNodeOptions;
  readonly sink: ResourceSink;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: XdsMetrics;
  /** Address resources are asked for by these names; all of them are followed without it. */
  readonly demanded?: DemandedNames;
}

/** The client's metrics (docs/spec/observability.md). */
export interface XdsMetrics {
  readonly terminations: Counter<'reason'>;
  readonly messages: Counter<'url'>;
  readonly messageBytes: Counter<'url'>;
  readonly nacks: Counter<'url'>;
}

/** Declares the client's metrics. */
export function createXdsMetrics(registry: MetricRegistry): XdsMetrics {
  return {
    terminations: registry.counter(
      'istio_xds_connection_terminations_total',
      'Ends of streams to the control plane',
      ['reason'],
    ),
    messages: registry.counter('istio_xds_message_total', 'Responses of the control plane', [
      'url',
    ]),
    messageBytes: registry.counter(
      'istio_xds_message_bytes_total',
      'Bytes of resources in responses of the control plane',
      ['url'],
    ),
    nacks: registry.counter('weft_xds_nacks_total', 'Responses with a refused resource', ['url']),
  };
}

/**
 * Follows a control plane over delta ADS: wildcard subscriptions or names on demand, resume by versions, ACK and NACK, reconnect. The sink
 * keeps the received resources while the control plane is away.
 */
export class DeltaClient {
  readonly #deps: DeltaClientDeps;
  readonly #stop = new AbortController();
  readonly #listeners = new Set<() => void>();
  /** Settles when the client is closed; rejects when the sink failed. */
  readonly finished: Promise<void>;
  #restart = new AbortController();
  #current: Subscriptions | null = null;
  /** Sends on the open stream, once the first requests are sent. */
  #send: SendRequest | null = null;
  #demanding = false;
  #everSynced = false;

  constructor(deps: DeltaClientDeps) {
    this.#deps = deps;
    this.finished = this.#run();
  }

  /** True while a stream is open on which a response of every type was answered. */
  get live(): boolean {
    return this.#current?.complete ?? false;
  }

  /** True once {@link live} was. */
  get everSynced(): boolean {
    return this.#everSynced;
  }

  /** Calls `listener` when {@link live} became true. */
  onLive(listener: () => void): void {
    this.#listeners.add(listener);
  }

  /** Asks for the names that are due, if a stream is open; the next stream begins with them otherwise. */
  demand(): void {
    if (this.#demanding || this.#send === null) return;
    this.#demanding = true;
    const ended = (): void => {
      this.#demanding = false;
    };
    this.#demandAll(this.#send).then(ended, (error: unknown) => {
      ended();
      // The stream has ended, and tells why; the next one asks for all names anew.
      this.#deps.log.debug({ error: errorText(error) }, 'xds.demand-not-sent');
    });
  }

  /** Opens a new stream, after the sink's content was changed from elsewhere. */
  reopen(): void {
    this.#restart.abort(new Error('reopened'));
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('client closed'));
    this.#restart.abort(this.#stop.signal.reason);
    await Promise.allSettled([this.finished]);
  }

  async #run(): Promise<void> {
    const { clock, log, metrics } = this.#deps;
    const { signal } = this.#stop;
    let baseMs = RECONNECT_BASE_MS;
    while (!signal.aborted) {
      this.#restart = new AbortController();
      const startedAt = clock.monotonic();
      const { end, text } = await this.#stream(this.#restart.signal);
      const wasLive = this.live;
      this.#current = null;
      this.#send = null;
      if (signal.aborted) return;
      if (wasLive && clock.monotonic() - startedAt >= STREAM_SOUND_MS) baseMs = RECONNECT_BASE_MS;
      const next = nextAttempt(end, baseMs);
      baseMs = next.baseMs;
      metrics.terminations.inc({ reason: next.reason });
      log.warn({ reason: next.reason, error: text, retryMs: next.sleepMs }, 'xds.stream-ended');
      await pause(clock, next.sleepMs, signal);
    }
  }

  async #stream(signal: AbortSignal): ReturnType<typeof runDeltaStream> {
    let client: SecureClient | null = null;
    try {
      client = this.#deps.open();
    } catch (error) {
      return { end: { kind: 'not-established' }, text: String(error) };
    }
    const subscriptions = new Subscriptions(this.#deps.demanded);
    try {
      return await runDeltaStream(
        client,
        {
          opened: (send) => this.#opened(subscriptions, send),
          response: (response, send) => this.#response(subscriptions, response, send),
        },
        signal,
      );
    } finally {
      client.close();
    }
  }

  async #opened(subscriptions: Subscriptions, send: SendRequest): Promise<void> {
    const { log, node, sink } = this.#deps;
    this.#current = subscriptions;
    const requests = subscriptions.initialRequests(node, (type) => sink.versions(type));
    for (const request of requests) {
      const { initialVersions, typeUrl } = request;
      if (initialVersions === undefined) log.info({ type: typeUrl }, 'xds.versions-left-out');
      const held = Object.keys(initialVersions ?? {}).length;
      log.info({ type: typeUrl, held }, 'xds.subscribed');
      await send(request);
    }
    this.#send = send;
    this.demand();
  }

  async #demandAll(send: SendRequest): Promise<void> {
    const { demanded, log } = this.#deps;
    // A stream that ended meanwhile takes no names: they count as asked for there, and are asked for anew on the next.
    while (this.#send === send) {
      const names = demanded?.next(DEMAND_BYTES_MAX) ?? null;
      if (names === null) return;
      const { subscribe, unsubscribe } = names;
      log.debug({ subscribe: subscribe.length, unsubscribe: unsubscribe.length }, 'xds.demanded');
      await send({ typeUrl: ADDRESS_TYPE, subscribe, unsubscribe });
    }
  }

  async #response(
    subscriptions: Subscriptions,
    response: DeltaResponse,
    send: SendRequest,
  ): Promise<void> {
    const { log, metrics } = this.#deps;
    const { typeUrl: url, resources, removed } = response;
    const known = isResourceType(url);
    // Keeps the set of label values closed, whatever types the server names.
    const label = { url: known ? url : 'unknown' };
    metrics.messages.inc(label);
    const bytes = resources.reduce((sum, resource) => sum + (resource.bytes?.length ?? 0), 0);
    metrics.messageBytes.inc(label, bytes);
    const wasLive = subscriptions.complete;
    let failures: readonly ResourceFailure[] = [];
    if (known) failures = await this.#deps.sink.apply(url, subscriptions.changes(url, response));
    else log.error({ type: url.slice(0, 256) }, 'xds.type-ignored');
    const facts = { type: url, resources: resources.length, removed: removed.length, bytes };
    if (failures.length > 0) {
      metrics.nacks.inc(label);
      const first = failures.slice(0, 20).map(({ name, reason }) => `${name}: ${reason}`);
      log.error({ ...facts, refused: failures.length, first }, 'xds.nacked');
    } else {
      log.debug(facts, 'xds.acked');
    }
    await send(subscriptions.answer(response, failures));
    if (wasLive || !subscriptions.complete) return;
    this.#everSynced = true;
    log.info('xds.synced');
    for (const listener of this.#listeners) listener();
  }
}
