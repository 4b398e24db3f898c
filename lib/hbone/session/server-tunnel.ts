import type { MeshError } from '../../errors/mesh-error.ts';
import { serveRequest } from '../engine.ts';
import type {
  IncomingRequest,
  RefuseStatus,
  ServeOptions,
  ServerTunnel,
  TunnelPeer,
  TunnelStream,
} from '../engine.ts';
import { TokenBucket } from '../../async/token-bucket.ts';
import {
  ABANDONED_REQUESTS,
  MAX_CONCURRENT_STREAMS,
  MAX_UNDECIDED_REQUESTS,
  SERVER_HEADER_LIST_BYTES,
} from '../limits.ts';
import { NO_HEADERS, cutAuthority, cutMethod, readHeaders } from '../peer-text.ts';
import type { PeerHeaders } from '../peer-text.ts';
import { MAX_STREAM_ID, errorCode, fault, peerFault, settingId } from './frames.ts';
import type { HeaderBlock } from './header-block.ts';
import { requestHead } from './header-rules.ts';
import type { RequestHead } from './header-rules.ts';
import type { FieldList } from './hpack-decoder.ts';
import type { FieldPair } from './hpack-encoder.ts';
import { FramingSession } from './session.ts';
import type { SessionStream, WireMaker } from './wire.ts';

/** The server's end of a tunnel. */
export class FramingServerTunnel extends FramingSession implements ServerTunnel {
  readonly #serve: ServeOptions;
  readonly #budget: TokenBucket;
  #undecided = 0;
  /** The highest stream that the client has opened; streams above `#lastServed` are not served. */
  #lastOpened = 0;
  #lastServed = MAX_STREAM_ID;

  constructor(makeWire: WireMaker, peer: TunnelPeer, options: ServeOptions) {
    super(makeWire, peer, options, {
      isServer: true,
      maxHeaderListBytes: SERVER_HEADER_LIST_BYTES,
      settings: [[settingId.maxConcurrentStreams, MAX_CONCURRENT_STREAMS]],
    });
    this.#serve = options;
    this.#budget = new TokenBucket(options.clock, ABANDONED_REQUESTS);
    this.start();
  }

  /**
   * Drains in two steps (RFC 9113 §6.8). The first GOAWAY announces the end. When the client has read it, the second one names the last
   * stream served. Streams on their way in between are served.
   */
  drain(): void {
    if (this.draining || this.over) return;
    this.draining = true;
    this.sendGoaway(MAX_STREAM_ID);
    this.whenRead(() => {
      this.#lastServed = this.#lastOpened;
      this.sendGoaway(this.#lastServed);
      this.changed();
    });
  }

  /** The reason it was destroyed for; null when it has none or was not destroyed. */
  get destroyedFor(): MeshError | null {
    return this.reason;
  }

  /** Answers a request. */
  respond(
    stream: SessionStream,
    status: number,
    headers: Readonly<Record<string, string>>,
    endStream: boolean,
  ): void {
    const fields: FieldPair[] = [[':status', String(status)]];
    for (const name of Object.keys(headers)) fields.push([name, headers[name] ?? '']);
    this.sendHeaders(stream.id, fields, endStream);
    if (endStream) stream.endTaken();
  }

  /** Makes the bytes of an accepted stream accessible. */
  opened(stream: SessionStream): TunnelStream {
    return this.wire.opened(stream, NO_HEADERS, true);
  }

  protected override get lastTaken(): number {
    return Math.min(this.#lastOpened, this.#lastServed);
  }

  protected override headersOutside(block: HeaderBlock, list: FieldList): void {
    const { id } = block;
    if (id % 2 === 0) throw fault('HEADERS on a stream of ours');
    if (id <= this.#lastOpened) {
      this.headersAfterEnd(id);
      return;
    }
    this.#lastOpened = id;
    // The client opened the stream before it had read the GOAWAY, which tells it that the stream is not served.
    if (id > this.#lastServed) {
      this.spendIdleFrame();
      this.ended.add(id, 'reset-by-us');
      this.wire.resetStream(id, errorCode.refusedStream);
      return;
    }
    if (this.#tooMany()) {
      this.counters.refused += 1;
      this.refuse(id, errorCode.refusedStream);
      return;
    }
    const head = list.oversized ? 'too many headers' : requestHead(list.fields);
    if (typeof head === 'string' || block.selfDependent) {
      this.refuse(id, errorCode.protocolError);
      return;
    }
    this.#request(id, head, block.endStream);
  }

  protected override isIdle(id: number): boolean {
    return id % 2 === 0 || id > this.#lastOpened;
  }

  protected override goneAway(): void {
    // It concerns streams that the server would open. The client closes the tunnel when its own streams have ended.
  }

  protected override changed(): void {
    if (!this.draining || this.#lastServed === MAX_STREAM_ID) return;
    if (this.streams === 0) this.closeGently();
  }

  #tooMany(): boolean {
    if (this.#undecided >= MAX_UNDECIDED_REQUESTS) {
      // A request beyond the limit of undecided ones costs the work that the budget bounds.
      this.#abandoned();
      return true;
    }
    return this.streams >= MAX_CONCURRENT_STREAMS;
  }

  #request(id: number, head: RequestHead, endStream: boolean): void {
    const stream = this.newStream(id);
    if (head.contentLength !== null) stream.expect(head.contentLength);
    if (endStream) {
      if ((head.contentLength ?? 0) > 0) {
        this.resetStream(stream, errorCode.protocolError);
        return;
      }
      stream.remoteEnd();
    }
    const request = new FramedRequest(this, stream, head);
    const onOver = (): void => {
      if (!request.answered) this.#abandoned();
      request.over();
    };
    stream.listen(onOver, null);
    this.#undecided += 1;
    serveRequest(this.#serve, request, this, () => {
      this.#undecided -= 1;
    });
  }

  #abandoned(): void {
    if (this.over || this.#budget.spend()) return;
    this.fail(
      peerFault(errorCode.enhanceYourCalm, 'gives up too many requests'),
      'too-many-resets',
    );
  }
}

/** A request of a client that waits for its answer. */
class FramedRequest implements IncomingRequest {
  readonly method: string;
  readonly authority: string;
  headers: PeerHeaders;
  readonly #tunnel: FramingServerTunnel;
  readonly #stream: SessionStream;
  #answered = false;
  #onAborted: ((reason: MeshError | null) => void) | null = null;

  constructor(tunnel: FramingServerTunnel, stream: SessionStream, head: RequestHead) {
    this.method = cutMethod(head.method);
    this.authority = cutAuthority(head.authority);
    this.headers = readHeaders(head.headers);
    this.#tunnel = tunnel;
    this.#stream = stream;
  }

  get aborted(): boolean {
    return this.#stream.over;
  }

  /** Whether it was answered or reset by this side. */
  get answered(): boolean {
    return this.#answered;
  }

  onAborted(listener: (reason: MeshError | null) => void): void {
    if (this.aborted) listener(this.#tunnel.destroyedFor);
    else this.#onAborted = listener;
  }

  /** The stream is over. */
  over(): void {
    const listener = this.#onAborted;
    this.#onAborted = null;
    if (this.#answered) return;
    // Nobody reads the bytes that have come already.
    this.#stream.reset(errorCode.cancel);
    listener?.(this.#tunnel.destroyedFor);
  }

  accept(headers: Readonly<Record<string, string>>): TunnelStream | null {
    if (!this.#answer()) return null;
    this.#tunnel.respond(this.#stream, 200, headers, false);
    // An answered request lives as long as its stream, and needs its headers no more.
    this.headers = NO_HEADERS;
    return this.#tunnel.opened(this.#stream);
  }

  refuse(status: RefuseStatus): void {
    if (!this.#answer()) return;
    this.#tunnel.counters.refused += 1;
    const stream = this.#stream;
    this.#tunnel.respond(stream, status, {}, true);
    // Nobody reads what the client still sends. The bytes of this turn are still checked.
    setImmediate(() => stream.reset(errorCode.noError));
  }

  reset(code: 'cancel' | 'refused'): void {
    if (this.aborted) return;
    this.#answered = true;
    this.#stream.reset(code === 'cancel' ? errorCode.cancel : errorCode.refusedStream);
  }

  #answer(): boolean {
    if (this.aborted || this.#answered) return false;
    this.#answered = true;
    return true;
  }
}
