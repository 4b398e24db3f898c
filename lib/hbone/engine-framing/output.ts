import type { TLSSocket } from 'node:tls';
import {
  DEFAULT_FRAME_SIZE,
  DEFAULT_WINDOW,
  FRAME_HEADER_BYTES,
  frameFlag,
  frameType,
  writeFrameHeader,
} from './frames.ts';
import { MAX_CONTROL_BYTES, TURN_BYTES, WRITE_BYTES } from './limits.ts';

/** The part of a stream that the output needs. */
export interface Outgoing {
  readonly id: number;
  /** Bytes that the peer lets it send; may be negative. */
  readonly sendWindow: number;
  /** Bytes that wait to be sent. */
  readonly waiting: number;
  /** Whether no further byte follows those that wait, and END_STREAM is not sent yet. */
  readonly ending: boolean;
  /** Whether it is in the output's row; only the output sets it. */
  inRow: boolean;
  /** Moves `bytes` of the waiting bytes to `into` and spends window. */
  take(into: Buffer, at: number, bytes: number): void;
  /** END_STREAM has been sent. */
  endTaken(): void;
}

/**
 * The buffer of all writes of a thread, one after the other. node:tls encrypts a single buffer before `write` returns, or else copies
 * it.
 */
const shared = Buffer.allocUnsafeSlow(WRITE_BYTES);

/**
 * Sends the frames of a tunnel. One write is under way at a time. The first of a turn goes at once; frames that come until it is done are
 * gathered into the next, so that many small frames make one TLS record. Frames other than DATA go first; streams take turns.
 */
export class Output {
  /** Bytes that the peer lets the connection send. */
  window = DEFAULT_WINDOW;
  maxFrameSize = DEFAULT_FRAME_SIZE;
  readonly #socket: TLSSocket;
  readonly #onDataSent: (bytes: number) => void;
  readonly #control: Buffer[] = [];
  #controlBytes = 0;
  /** Streams with something to send and a window for it, in their order. */
  #row: Outgoing[] = [];
  #writing = false;
  #onFinished: (() => void) | null = null;

  /** `onDataSent` is called with the bytes of each DATA frame sent. */
  constructor(socket: TLSSocket, onDataSent: (bytes: number) => void) {
    this.#socket = socket;
    this.#onDataSent = onDataSent;
  }

  /** Sends a frame other than DATA; false when the peer has left too many unread. */
  control(frame: Buffer): boolean {
    this.#controlBytes += frame.length;
    this.#control.push(frame);
    this.flush();
    return this.#controlBytes <= MAX_CONTROL_BYTES;
  }

  /** Queues a stream that has something to send. */
  ready(stream: Outgoing): void {
    if (stream.inRow || !sendable(stream)) return;
    stream.inRow = true;
    this.#row.push(stream);
    this.flush();
  }

  /** Calls `done` when all that can be sent is handed to the socket. */
  finish(done: () => void): void {
    this.#onFinished = done;
    this.flush();
  }

  /** Sends the waiting frames. While a write is under way they follow it. */
  flush(): void {
    if (this.#writing || this.#socket.destroyed) return;
    // Filling makes room, which may call back with more to send.
    this.#writing = true;
    const length = this.#fill();
    if (length === 0) {
      this.#writing = false;
      const done = this.#onFinished;
      this.#onFinished = null;
      done?.();
      return;
    }
    this.#socket.write(shared.subarray(0, length), this.#written);
  }

  readonly #written = (): void => {
    this.#writing = false;
    this.flush();
  };

  /** Fills the shared buffer and returns the number of bytes. */
  #fill(): number {
    let at = 0;
    for (const frame of this.#control) {
      if (at + frame.length > shared.length) break;
      frame.copy(shared, at);
      at += frame.length;
    }
    if (at > 0) this.#dropControl(at);
    if (this.#control.length > 0 || this.#row.length === 0) return at;
    return this.#fillData(at);
  }

  #dropControl(bytes: number): void {
    this.#controlBytes -= bytes;
    let left = bytes;
    let taken = 0;
    while (left > 0) {
      left -= this.#control[taken]?.length ?? left;
      taken += 1;
    }
    this.#control.splice(0, taken);
  }

  #fillData(from: number): number {
    const row = this.#row;
    let at = from;
    let next = 0;
    const blocked: Outgoing[] = [];
    while (next < row.length && shared.length - at > FRAME_HEADER_BYTES) {
      const stream = row[next];
      if (stream === undefined) break;
      next += 1;
      if (this.window <= 0 && stream.waiting > 0) {
        blocked.push(stream);
        continue;
      }
      const alone = next === row.length;
      const space = shared.length - at - FRAME_HEADER_BYTES;
      at = this.#frame(
        stream,
        at,
        alone ? space : Math.min(space, TURN_BYTES - FRAME_HEADER_BYTES),
      );
      // The stream stays in the row, behind the others.
      if (sendable(stream)) row.push(stream);
      else stream.inRow = false;
    }
    this.#row = next === row.length ? blocked : [...blocked, ...row.slice(next)];
    return at;
  }

  #frame(stream: Outgoing, at: number, space: number): number {
    const length = Math.max(
      0,
      Math.min(stream.waiting, stream.sendWindow, this.window, this.maxFrameSize, space),
    );
    if (length > 0) stream.take(shared, at + FRAME_HEADER_BYTES, length);
    const last = stream.ending && stream.waiting === 0;
    if (length === 0 && !last) return at;
    const flags = last ? frameFlag.endStream : 0;
    writeFrameHeader(shared, at, { type: frameType.data, flags, id: stream.id }, length);
    this.window -= length;
    this.#onDataSent(length);
    if (last) stream.endTaken();
    return at + FRAME_HEADER_BYTES + length;
  }
}

function sendable(stream: Outgoing): boolean {
  return stream.waiting > 0 ? stream.sendWindow > 0 : stream.ending;
}
