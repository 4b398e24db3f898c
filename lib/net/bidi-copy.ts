/**
 * Copies bytes between two connections until both directions have ended (docs/spec/dataplane.md §10). It stops reading while the other
 * side cannot take more, so that each direction holds at most HIGH_WATER_BYTES and one read in memory.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { QueuedBytes, UNACCOUNTED } from './held-bytes.ts';
import type { ByteAccount } from './held-bytes.ts';
import { passLastBytes } from './last-bytes.ts';
import { RawSocket } from './raw-socket.ts';
import { resetSocket } from './socket.ts';

/** The client's side, or the server's. */
export type CopySide = 'a' | 'b';

/**
 * The reason for closing an end before its peer has ended: the other connection has ended and nobody reads the rest (`unread`), the other
 * connection was reset, or the mesh cuts the connection. Only `unread` is a normal end.
 */
export type Abort = 'unread' | 'reset' | 'cut';

/** One of the two connections. */
export interface CopyEnd {
  /** Must be half-open: its `end` event must not end its writable side. */
  readonly duplex: Duplex;
  /**
   * Moves the bytes between this end and a TCP socket by a shorter way, on the same terms; null when there is none. The copy asks for
   * it before it touches `duplex`.
   */
  readonly carry?: (socket: RawSocket, socketIs: CopySide) => Copy | null;
  /** Set for a TCP socket, as long as `duplex` was not asked for. */
  readonly raw?: RawSocket;
  /** Ends both directions at once: a TCP socket is reset, a tunnel stream by RST_STREAM. What waits is dropped. */
  abort(why: Abort): void;
}

/** Bytes copied so far. */
export interface CopyCounts {
  /** From the client (`a`) towards the server (`b`). */
  fromA: number;
  fromB: number;
  /** The time of the first byte from `b`, by performance.now(); unset before it, or if the copy cannot tell. */
  firstFromBMs?: number;
}

/** How a copy ended. */
export interface CopyResult {
  /** Set when a side failed in another way than by closing. */
  readonly error: Error | null;
}

/** A copy in progress. */
export interface Copy {
  readonly counts: Readonly<CopyCounts>;
  /** Resolves when both connections are closed. Never rejects. */
  readonly done: Promise<CopyResult>;
  /** Aborts both connections now: both peers learn of an abnormal end. */
  abort(): void;
}

/**
 * Bytes that may wait in a writable before its source is paused. It is above Node's own mark (64 KiB, one read), so that not each read
 * costs a pause, and low enough for many stalled connections.
 */
export const HIGH_WATER_BYTES = 262_144;

/** Failures that only mean that the other side is gone; they are no failures of this process. */
const ORDINARY_ENDS: ReadonlySet<string> = new Set([
  'ECONNRESET',
  'EPIPE',
  'ENOTCONN',
  'ECONNABORTED',
  'ERR_STREAM_DESTROYED',
  'ERR_STREAM_WRITE_AFTER_END',
  'ERR_STREAM_PREMATURE_CLOSE',
  'ERR_HTTP2_INVALID_STREAM',
  'ABORT_ERR',
]);

/**
 * Starts to copy. The copy owns both ends and closes them. Waiting bytes are charged to `bytes`, unless an end with a shorter way has
 * an account of its own.
 */
export function bidiCopy(a: CopyEnd, b: CopyEnd, bytes: ByteAccount = UNACCOUNTED): Copy {
  return shortWay(a, b, 'b') ?? shortWay(b, a, 'a') ?? new RunningCopy(a, b, bytes);
}

/** A copy that had nothing to carry. */
export const ENDED_COPY: Copy = {
  counts: { fromA: 0, fromB: 0 },
  done: Promise.resolve({ error: null }),
  abort() {},
};

/** A TCP socket as one end of a copy. */
export function socketEnd(socket: RawSocket | Socket): CopyEnd {
  return new SocketEnd(socket instanceof RawSocket ? socket : new RawSocket(socket));
}

class SocketEnd implements CopyEnd {
  readonly raw: RawSocket;

  constructor(raw: RawSocket) {
    this.raw = raw;
  }

  get duplex(): Socket {
    return this.raw.adopt();
  }

  abort(why: Abort): void {
    if (why === 'unread') this.duplex.destroy();
    else resetSocket(this.duplex);
  }
}

/** Whether an error only means that the other side is gone. */
export function isOrdinaryEnd(error: NodeJS.ErrnoException): boolean {
  return ORDINARY_ENDS.has(error.code ?? '');
}

function shortWay(end: CopyEnd, other: CopyEnd, otherIs: CopySide): Copy | null {
  return other.raw === undefined ? null : (end.carry?.(other.raw, otherIs) ?? null);
}

class RunningCopy implements Copy {
  readonly counts: CopyCounts = { fromA: 0, fromB: 0 };
  readonly done: Promise<CopyResult>;
  readonly #a: CopyEnd;
  readonly #b: CopyEnd;
  /** The end whose last bytes were passed on when a write to it failed. */
  #ended: CopyEnd | null = null;
  #error: Error | null = null;

  constructor(a: CopyEnd, b: CopyEnd, bytes: ByteAccount) {
    this.#a = a;
    this.#b = b;
    const { counts } = this;
    this.done = new Promise((resolve) => {
      let open = 2;
      const closed = (): void => {
        open -= 1;
        if (open === 0) resolve({ error: this.#error });
      };
      this.#watch(a, b, closed);
      this.#watch(b, a, closed);
    });
    const countA = (length: number): void => {
      counts.fromA += length;
    };
    const countB = (length: number): void => {
      counts.firstFromBMs ??= performance.now();
      counts.fromB += length;
    };
    forward(a, b.duplex, bytes, countA, (error) => this.#failed(b, a, error, countB));
    forward(b, a.duplex, bytes, countB, (error) => this.#failed(a, b, error, countA));
  }

  abort(): void {
    this.#a.abort('cut');
    this.#b.abort('cut');
  }

  /** A write to `end` has failed. */
  #failed(end: CopyEnd, other: CopyEnd, error: Error, count: (bytes: number) => void): void {
    if (!(end.duplex instanceof Socket) || end.duplex.readableEnded) return;
    const pass = (piece: Buffer): void => {
      if (other.duplex.destroyed) return;
      count(piece.length);
      other.duplex.write(piece);
    };
    if (passLastBytes(end.duplex, error, pass)) this.#ended = end;
  }

  /** Ends `other` when `end` closes. */
  #watch(end: CopyEnd, other: CopyEnd, closed: () => void): void {
    const onClose = (): void => {
      // Without an end from its peer the connection was reset or has failed.
      if (end.duplex.readableEnded || this.#ended === end) finish(other);
      else if (!isGone(other.duplex)) other.abort('reset');
      closed();
    };
    end.duplex.on('error', (error: NodeJS.ErrnoException) => {
      if (!isOrdinaryEnd(error)) this.#error ??= error;
    });
    if (isGone(end.duplex)) queueMicrotask(onClose);
    else end.duplex.once('close', onClose);
  }
}

/** Copies one direction: each chunk costs a count and a write. */
function forward(
  source: CopyEnd,
  to: Duplex,
  bytes: ByteAccount,
  count: (bytes: number) => void,
  failed: (error: Error) => void,
): void {
  const { duplex: from } = source;
  const queued = new QueuedBytes(to, bytes);
  const written = (error?: Error | null): void => {
    if (error) failed(error);
  };
  from.on('data', (chunk: Buffer) => {
    // The bytes are dropped and not counted. A pause would last: no drain follows it.
    if (to.destroyed) return;
    count(chunk.length);
    if (to.write(chunk, written)) return;
    queued.update();
    // A writable emits `drain` from its own mark on.
    if (to.writableLength >= HIGH_WATER_BYTES || bytes.pressed) from.pause();
  });
  to.once('close', () => queued.close());
  to.on('drain', () => {
    queued.update();
    if (from.isPaused()) from.resume();
  });
  from.once('end', () => {
    if (to.writable) to.end();
  });
  if (from.readableEnded && to.writable) to.end();
  // A socket accepted with pauseOnConnect stays paused until `resume`.
  else from.resume();
}

/**
 * Closes `end` after the opposite connection has ended and closed. Bytes handed to `end` reach its peer first. Then it is aborted,
 * since nobody reads its peer any more. If the peer has ended already, the connection closes by itself; a reset could overtake the
 * last bytes.
 */
function finish(end: CopyEnd): void {
  const { duplex } = end;
  if (isGone(duplex)) return;
  const cut = (): void => {
    if (!duplex.readableEnded) end.abort('unread');
  };
  // `writable` does not help here: it is false from the call of `end` on, with bytes still waiting.
  if (duplex.writableFinished || duplex.destroyed) cut();
  else duplex.end(cut);
}

/** Whether a duplex has closed. A stream of node:http2 is `closed` when both sides have ended, even if bytes still wait for a reader. */
function isGone(duplex: Duplex): boolean {
  return duplex.closed && duplex.destroyed;
}
