import { constants } from 'node:http2';
import type {
  IncomingHttpHeaders,
  ServerHttp2Session,
  ServerHttp2Stream,
  ServerStreamResponseOptions,
} from 'node:http2';
import { serveRequest } from '../../../lib/hbone/engine.ts';
import type {
  IncomingRequest,
  RefuseStatus,
  ServeOptions,
  ServerTunnel,
  TunnelCounters,
  TunnelStream,
} from '../../../lib/hbone/engine.ts';
import type { MeshError } from '../../../lib/errors/mesh-error.ts';
import { TokenBucket } from '../../../lib/async/token-bucket.ts';
import { ABANDONED_REQUESTS, MAX_UNDECIDED_REQUESTS } from '../../../lib/hbone/limits.ts';
import { NO_HEADERS, cutAuthority, cutMethod, readHeaders } from '../../../lib/hbone/peer-text.ts';
import type { PeerHeaders } from '../../../lib/hbone/peer-text.ts';
import type { StayingSocket } from '../staying-tls.ts';
import { SessionTunnel } from './session.ts';
import { Http2TunnelStream, flatHeaders } from './stream.ts';

/** `sendDate` is missing from the type; a date is nothing HBONE peers ask for. */
const ANSWER: ServerStreamResponseOptions & { readonly sendDate: false } = { sendDate: false };
const LAST_ANSWER: ServerStreamResponseOptions = { ...ANSWER, endStream: true };

/** The server's end of a node:http2 session. */
export class Http2ServerTunnel extends SessionTunnel implements ServerTunnel {
  readonly #serve: ServeOptions;
  readonly #budget: TokenBucket;
  #undecided = 0;

  constructor(session: ServerHttp2Session, secured: StayingSocket, options: ServeOptions) {
    super(session, secured, options);
    this.#serve = options;
    this.#budget = new TokenBucket(options.clock, ABANDONED_REQUESTS);
    session.setLocalWindowSize(options.settings.connectionWindow);
    session.on('stream', (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => {
      this.#onStream(stream, headers);
    });
  }

  protected override changed(): void {
    // Nobody waits for room on a server's tunnel.
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    // The stream's end is what matters; how the peer failed is in its reset code.
    stream.on('error', noop);
    if (!this.usable || this.#undecided >= MAX_UNDECIDED_REQUESTS) {
      this.counters.refused += 1;
      // The peer asked for more than it may have undecided: that is the work the budget is about.
      if (this.usable) this.#abandoned();
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      return;
    }
    this.streamBegan();
    this.#undecided += 1;
    const request = new Http2Request(stream, headers, this);
    stream.once('close', () => {
      this.streamEnded();
      if (!request.answered) this.#abandoned();
    });
    serveRequest(this.#serve, request, this, () => {
      this.#undecided -= 1;
    });
  }

  #abandoned(): void {
    if (!this.#budget.spend()) this.end('too-many-resets', constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/** A request of a peer that waits for its answer. */
class Http2Request implements IncomingRequest {
  readonly method: string;
  readonly authority: string;
  headers: PeerHeaders;
  readonly #stream: ServerHttp2Stream;
  readonly #tunnel: Pick<SessionTunnel, 'destroyedFor'>;
  readonly #counters: TunnelCounters;
  #answered = false;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, tunnel: Http2ServerTunnel) {
    this.#stream = stream;
    this.#tunnel = tunnel;
    this.#counters = tunnel.counters;
    this.method = cutMethod(headers[':method'] ?? '');
    this.authority = cutAuthority(headers[':authority'] ?? '');
    this.headers = readHeaders(flatHeaders(headers));
  }

  get aborted(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  /** Whether we have answered or reset it. */
  get answered(): boolean {
    return this.#answered;
  }

  onAborted(listener: (reason: MeshError | null) => void): void {
    if (this.aborted) listener(this.#tunnel.destroyedFor);
    else {
      this.#stream.once('close', () => {
        if (!this.#answered) listener(this.#tunnel.destroyedFor);
      });
    }
  }

  accept(headers: Readonly<Record<string, string>>): TunnelStream | null {
    if (!this.#answerable()) return null;
    this.#answered = true;
    this.#stream.respond({ ':status': 200, ...headers }, ANSWER);
    // Answered, it lives as long as its stream.
    this.headers = NO_HEADERS;
    return new Http2TunnelStream(this.#stream, NO_HEADERS, this.#counters);
  }

  refuse(status: RefuseStatus): void {
    if (!this.#answerable()) return;
    this.#answered = true;
    this.#counters.refused += 1;
    this.#stream.respond({ ':status': status }, LAST_ANSWER);
    // Nobody reads what the peer still sends. A reset in the same turn would overtake the answer.
    setImmediate(() => {
      if (!this.aborted) this.#stream.close(constants.NGHTTP2_NO_ERROR);
    });
  }

  reset(code: 'cancel' | 'refused'): void {
    if (this.aborted) return;
    this.#answered = true;
    this.#counters.resetSent += 1;
    const cancel = code === 'cancel';
    this.#stream.close(cancel ? constants.NGHTTP2_CANCEL : constants.NGHTTP2_REFUSED_STREAM);
  }

  #answerable(): boolean {
    return !this.aborted && !this.#answered;
  }
}

function noop(): void {}
