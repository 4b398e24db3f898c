import { MeshError } from '../../errors/mesh-error.ts';
import { endedUnanswered } from '../engine.ts';
import type {
  ClientTunnel,
  OpenRequest,
  TunnelOptions,
  TunnelPeer,
  TunnelStream,
} from '../engine.ts';
import { CLIENT_HEADER_LIST_BYTES, RESPONSE_TIMEOUT_MS } from '../limits.ts';
import { readHeaders } from '../peer-text.ts';
import { MAX_STREAM_ID, errorCode, fault, settingId } from './frames.ts';
import type { HeaderBlock } from './header-block.ts';
import { responseHead } from './header-rules.ts';
import type { ResponseHead } from './header-rules.ts';
import { FramingSession } from './session.ts';
import type { SessionStream, WireMaker } from './wire.ts';

const STATUS_OK = 200;

/** The client's end of a tunnel. */
export class FramingClientTunnel extends FramingSession implements ClientTunnel {
  readonly #listeners: (() => void)[] = [];
  #nextId = 1;
  /** The last local stream that the server processes; its GOAWAY states it. */
  #lastServed = MAX_STREAM_ID;
  #goneAway = false;

  constructor(makeWire: WireMaker, peer: TunnelPeer, options: TunnelOptions) {
    super(makeWire, peer, options, {
      isServer: false,
      maxHeaderListBytes: CLIENT_HEADER_LIST_BYTES,
      settings: [[settingId.enablePush, 0]],
    });
    this.start();
  }

  override get usable(): boolean {
    return super.usable && !this.#goneAway && this.#nextId < MAX_STREAM_ID;
  }

  get capacity(): number {
    if (!this.usable) return 0;
    const { maxStreams } = this.options.settings;
    const limit = Math.min(maxStreams, this.peerSettings.maxConcurrentStreams ?? maxStreams);
    return Math.max(0, limit - this.streams);
  }

  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  async open(request: OpenRequest): Promise<TunnelStream> {
    if (!this.usable) {
      throw new MeshError('TUNNEL_CLOSED', 'the tunnel takes no new connections', {
        cause: this.failure ?? undefined,
      });
    }
    const stream = this.newStream(this.#nextId);
    this.#nextId += 2;
    const answer = this.#answer(stream);
    this.sendHeaders(
      stream.id,
      [
        [':method', 'CONNECT'],
        [':authority', request.authority],
        ...Object.entries(request.headers),
      ],
      false,
    );
    if (request.client !== undefined) stream.lend?.(request.client);
    const { status, headers } = await answer;
    if (status !== STATUS_OK) {
      stream.reset(errorCode.cancel);
      throw new MeshError(
        'TUNNEL_REFUSED',
        `the peer refused the connection with status ${status}`,
        { detail: { status, authority: request.authority } },
      );
    }
    return this.wire.opened(stream, readHeaders(headers), false);
  }

  drain(): void {
    if (this.draining || this.over) return;
    this.draining = true;
    this.sendGoaway(0);
    this.changed();
  }

  protected override get lastTaken(): number {
    return 0;
  }

  protected override headersOutside({ id }: HeaderBlock): void {
    if (this.isIdle(id)) throw fault('HEADERS on a stream that we have not opened');
    this.headersAfterEnd(id);
  }

  protected override isIdle(id: number): boolean {
    return id % 2 === 0 || id >= this.#nextId;
  }

  protected override goneAway(lastId: number, code: number): void {
    this.#goneAway = true;
    this.#lastServed = Math.min(this.#lastServed, lastId);
    if (code !== errorCode.noError) {
      this.failure ??= new MeshError('TUNNEL_CLOSED', `the peer ended the tunnel (code ${code})`);
    }
    for (const stream of this.live) {
      if (stream.id > this.#lastServed) this.#notServed(stream);
    }
    this.changed();
  }

  protected override changed(): void {
    if ((this.draining || this.#goneAway) && this.streams === 0) this.closeGently();
    for (const listener of this.#listeners) listener();
  }

  /** Ends a stream that the server did not process, as its GOAWAY states. */
  #notServed(stream: SessionStream): void {
    stream.resetCode = errorCode.refusedStream;
    this.live.delete(stream.id);
    this.ended.add(stream.id, 'reset-by-us');
    const error = new MeshError('TUNNEL_CLOSED', 'the peer took no new connection on this tunnel');
    stream.finish({ error, broken: true });
  }

  #answer(stream: SessionStream): Promise<ResponseHead> {
    return new Promise((resolve, reject) => {
      const settle = (): void => {
        timer.cancel();
        stream.onHead = null;
        stream.onOver = null;
      };
      const failed = (error: MeshError): void => {
        settle();
        // Nobody reads the bytes that have come already.
        if (stream.over) stream.reset(errorCode.cancel);
        reject(error);
      };
      const timer = this.options.clock.after(RESPONSE_TIMEOUT_MS, () => {
        failed(
          new MeshError(
            'UPSTREAM_TIMEOUT',
            `the peer did not answer the connect request within ${RESPONSE_TIMEOUT_MS} ms`,
          ),
        );
        stream.reset(errorCode.cancel);
      });
      stream.onOver = () => failed(this.#unanswered(stream));
      stream.onHead = (list) => {
        const head = list.oversized ? 'too many headers' : responseHead(list.fields);
        if (typeof head === 'string') {
          failed(new MeshError('TUNNEL_PROTOCOL', `the peer's answer has ${head}`));
          this.resetStream(stream, errorCode.protocolError);
        } else if (head.status >= STATUS_OK) {
          settle();
          resolve(head);
        }
      };
    });
  }

  /** The error of a stream that ended before its answer came. */
  #unanswered(stream: SessionStream): MeshError {
    if (this.reason !== null) return this.reason;
    const { resetCode: code } = stream;
    const cause = this.failure ?? undefined;
    if (code === errorCode.refusedStream) {
      this.counters.refused += 1;
      return new MeshError('TUNNEL_CLOSED', 'the peer took no new connection on this tunnel', {
        cause,
        detail: { refused: true },
      });
    }
    if (!this.usable) return endedUnanswered(cause);
    return new MeshError('TUNNEL_RESET', `the peer reset the connection request (code ${code})`, {
      detail: { code },
    });
  }
}
