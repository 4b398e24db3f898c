import { constants } from 'node:http2';
import type { Http2Stream, IncomingHttpHeaders } from 'node:http2';
import type { Duplex } from 'node:stream';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { Abort } from '../../../lib/net/bidi-copy.ts';
import { endedUnanswered } from '../../../lib/hbone/engine.ts';
import type { TunnelCounters, TunnelStream } from '../../../lib/hbone/engine.ts';

/** node:http2 takes any other code than CANCEL for a failure of the stream it is sent on, which a reset of the application is not. */
const CODES: Readonly<Record<Abort, number>> = {
  unread: constants.NGHTTP2_CANCEL,
  reset: constants.NGHTTP2_CANCEL,
  cut: constants.NGHTTP2_INTERNAL_ERROR,
};

/** A stream whose request was answered with 200. */
export class Http2TunnelStream implements TunnelStream {
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly #stream: Http2Stream;
  readonly #counters: TunnelCounters;

  constructor(
    stream: Http2Stream,
    headers: Readonly<Record<string, string | undefined>>,
    counters: TunnelCounters,
  ) {
    this.headers = headers;
    this.#stream = stream;
    this.#counters = counters;
    stream.once('close', () => {
      // A reset that arrives leaves its code; our own are counted where they are made.
      if (stream.rstCode !== constants.NGHTTP2_NO_ERROR && !this.#resetByUs) {
        counters.resetReceived += 1;
      }
    });
  }

  #resetByUs = false;

  get duplex(): Duplex {
    return this.#stream;
  }

  toSocket(): never {
    throw new Error('node:http2 carries no tunnels in tunnels here');
  }

  reset(why: Abort = 'unread'): void {
    if (this.#stream.closed || this.#stream.destroyed) {
      this.#stream.destroy();
      return;
    }
    this.#resetByUs = true;
    this.#counters.resetSent += 1;
    this.#stream.close(CODES[why]);
    // It goes once what it holds is read, and nobody reads it any more.
    this.#stream.resume();
  }
}

/** Headers as one text each: repeated ones joined by a comma, as HTTP allows. */
export function flatHeaders(headers: IncomingHttpHeaders): Record<string, string | undefined> {
  const flat: Record<string, string | undefined> = {};
  for (const [name, value] of Object.entries(headers)) {
    flat[name] = Array.isArray(value) ? value.join(',') : value?.toString();
  }
  return flat;
}

/** Why a stream ended before its answer came. */
export function streamEndError(
  stream: Http2Stream,
  tunnel: { readonly failure: Error | null; readonly usable: boolean },
  failure: Error | null,
): MeshError {
  const code = stream.rstCode;
  const cause = failure ?? tunnel.failure ?? undefined;
  if (code === constants.NGHTTP2_REFUSED_STREAM) {
    return new MeshError('TUNNEL_CLOSED', 'the peer took no new connection on this tunnel', {
      cause,
      detail: { refused: true },
    });
  }
  if (!tunnel.usable) return endedUnanswered(cause);
  return new MeshError('TUNNEL_RESET', `the peer reset the connection request (code ${code})`, {
    cause,
    detail: { code },
  });
}
