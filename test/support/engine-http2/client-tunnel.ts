import { constants } from 'node:http2';
import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  IncomingHttpStatusHeader,
} from 'node:http2';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type {
  ClientTunnel,
  OpenRequest,
  TunnelOptions,
  TunnelStream,
} from '../../../lib/hbone/engine.ts';
import { RESPONSE_TIMEOUT_MS } from '../../../lib/hbone/limits.ts';
import { readHeaders } from '../../../lib/hbone/peer-text.ts';
import type { StayingSocket } from '../staying-tls.ts';
import { SessionTunnel } from './session.ts';
import { Http2TunnelStream, flatHeaders, streamEndError } from './stream.ts';

/** The client's end of a node:http2 session. */
export class Http2ClientTunnel extends SessionTunnel implements ClientTunnel {
  readonly #client: ClientHttp2Session;
  readonly #maxStreams: number;
  readonly #listeners: (() => void)[] = [];

  constructor(session: ClientHttp2Session, secured: StayingSocket, options: TunnelOptions) {
    super(session, secured, options);
    this.#client = session;
    this.#maxStreams = options.settings.maxStreams;
    const widen = (): void => session.setLocalWindowSize(options.settings.connectionWindow);
    if (session.connecting) session.once('connect', widen);
    else widen();
    // It may take more streams now, or fewer.
    session.on('remoteSettings', () => this.changed());
    // A server has no business opening streams; nobody would read this one.
    session.on('stream', (stream) => stream.close(constants.NGHTTP2_REFUSED_STREAM));
  }

  get capacity(): number {
    if (!this.usable) return 0;
    const peerLimit = this.session.remoteSettings?.maxConcurrentStreams ?? this.#maxStreams;
    return Math.max(0, Math.min(this.#maxStreams, peerLimit) - this.streams);
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  async open(request: OpenRequest): Promise<TunnelStream> {
    const stream = this.#request(request);
    const headers = await this.#response(stream);
    const status = headers[':status'];
    if (status !== 200) {
      stream.close(constants.NGHTTP2_CANCEL);
      throw new MeshError(
        'TUNNEL_REFUSED',
        `the peer refused the connection with status ${status}`,
        {
          detail: { status: status ?? null, authority: request.authority },
        },
      );
    }
    return new Http2TunnelStream(stream, readHeaders(flatHeaders(headers)), this.counters);
  }

  protected override changed(): void {
    for (const listener of this.#listeners) listener();
  }

  #request(request: OpenRequest): ClientHttp2Stream {
    if (!this.usable) {
      throw new MeshError('TUNNEL_CLOSED', 'the tunnel takes no new connections', {
        cause: this.failure ?? undefined,
      });
    }
    const stream = this.#client.request(
      { ':method': 'CONNECT', ':authority': request.authority, ...request.headers },
      { endStream: false },
    );
    this.streamBegan();
    stream.once('close', () => {
      this.streamEnded();
      this.changed();
    });
    return stream;
  }

  #response(stream: ClientHttp2Stream): Promise<IncomingHttpHeaders & IncomingHttpStatusHeader> {
    return new Promise((resolve, reject) => {
      let failure: Error | null = null;
      const timer = this.options.clock.after(RESPONSE_TIMEOUT_MS, () => {
        failure = new MeshError(
          'UPSTREAM_TIMEOUT',
          `the peer did not answer the connect request within ${RESPONSE_TIMEOUT_MS} ms`,
        );
        stream.close(constants.NGHTTP2_CANCEL);
      });
      // Also the guard against an unhandled error for the rest of the stream's life.
      stream.on('error', (error: Error) => {
        failure ??= error;
      });
      const closed = (): void => {
        timer.cancel();
        if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM) this.counters.refused += 1;
        reject(failure instanceof MeshError ? failure : streamEndError(stream, this, failure));
      };
      stream.once('close', closed);
      stream.once('response', (headers) => {
        timer.cancel();
        stream.off('close', closed);
        resolve(headers);
      });
    });
  }
}
