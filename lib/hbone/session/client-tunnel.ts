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
import type { PeerHeaders } from '../peer-text.ts';
import { AnswerLimits } from './answer-limits.ts';
import { MAX_STREAM_ID, errorCode, fault, settingId } from './frames.ts';
import type { HeaderBlock } from './header-block.ts';
import { responseHead } from './header-rules.ts';
import type { FieldList } from './hpack-decoder.ts';
import type { FieldPair } from './hpack-encoder.ts';
import { FramingSession } from './session.ts';
import type { SessionStream, WireMaker } from './wire.ts';

const STATUS_OK = 200;

/** The client's end of a tunnel. */
export class FramingClientTunnel extends FramingSession implements ClientTunnel {
  readonly #listeners: (() => void)[] = [];
  readonly #limits: AnswerLimits;
  /** Answers of one peer are mostly the same list. */
  #lastAnswer: Answer | null = null;
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
    this.#limits = new AnswerLimits(options.clock, this.timers, RESPONSE_TIMEOUT_MS);
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

  open(request: OpenRequest): Promise<TunnelStream> {
    if (!this.usable) {
      const cause = this.failure ?? undefined;
      return Promise.reject(
        new MeshError('TUNNEL_CLOSED', 'the tunnel takes no new connections', { cause }),
      );
    }
    return new Promise((resolve, reject) => {
      const stream = this.newStream(this.#nextId);
      this.#nextId += 2;
      this.#expectAnswer(stream, request, { resolve, reject });
      this.sendHeaders(stream.id, connectFields(request), false);
      const { client = null } = request;
      if (client !== null) stream.lend(client);
    });
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

  #expectAnswer(stream: SessionStream, { authority }: OpenRequest, opening: Opening): void {
    const settle = (): void => {
      this.#limits.done(awaited);
      stream.listen(null, null);
    };
    const failed = (error: MeshError): void => {
      settle();
      // Nobody reads the bytes that have come already.
      if (stream.over) stream.reset(errorCode.cancel);
      opening.reject(error);
    };
    const awaited = this.#limits.begin(() => {
      failed(
        new MeshError(
          'UPSTREAM_TIMEOUT',
          `the peer did not answer the connect request within ${RESPONSE_TIMEOUT_MS} ms`,
        ),
      );
      stream.reset(errorCode.cancel);
    });
    const onOver = (): void => failed(this.#unanswered(stream));
    const onHead = (list: FieldList): void => {
      const answer = this.#answerOf(list);
      if (typeof answer === 'string') {
        failed(new MeshError('TUNNEL_PROTOCOL', `the peer's answer has ${answer}`));
        this.resetStream(stream, errorCode.protocolError);
      } else if (answer.status === STATUS_OK) {
        settle();
        opening.resolve(this.wire.opened(stream, answer.headers, false));
      } else if (answer.status > STATUS_OK) {
        settle();
        // An END_STREAM of the answer is taken first.
        queueMicrotask(() => {
          stream.reset(errorCode.cancel);
          opening.reject(refused(answer.status, authority));
        });
      }
    };
    stream.listen(onOver, onHead);
  }

  /** Reads an answer, or tells what is wrong with it. */
  #answerOf(list: FieldList): Answer | string {
    if (this.#lastAnswer?.list === list) return this.#lastAnswer;
    const head = list.oversized ? 'too many headers' : responseHead(list.fields);
    if (typeof head === 'string') return head;
    this.#lastAnswer = { list, status: head.status, headers: readHeaders(head.headers) };
    return this.#lastAnswer;
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

/** The settlement of {@link FramingClientTunnel.open}. */
interface Opening {
  readonly resolve: (stream: TunnelStream) => void;
  readonly reject: (error: MeshError) => void;
}

/** A well-formed answer. */
interface Answer {
  readonly list: FieldList;
  readonly status: number;
  readonly headers: PeerHeaders;
}

function connectFields({ authority, headers }: OpenRequest): FieldPair[] {
  const fields: FieldPair[] = [
    [':method', 'CONNECT'],
    [':authority', authority],
  ];
  for (const name of Object.keys(headers)) fields.push([name, headers[name] ?? '']);
  return fields;
}

function refused(status: number, authority: string): MeshError {
  const text = `the peer refused the connection with status ${status}`;
  return new MeshError('TUNNEL_REFUSED', text, { detail: { status, authority } });
}
