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

/** A stream as the output sees it. */
export interface Outgoing {
  readonly id: number;
  /** What the peer lets it send, bytes; may be negative. */
  readonly sendWindow: number;
  /** Bytes that wait. */
  readonly waiting: number;
  /** The last byte is among those that wait, or has gone; END_STREAM has not. */
  readonly ending: boolean;
  /** Whether it stands in the output's row already. The output's own mark. */
  inRow: boolean;
  /** Copies `bytes` of what waits to `into`, spending window. */
  take(into: Buffer, at: number, bytes: number): void;
  /** END_STREAM has gone. */
  endTaken(): void;
  /** It may read into {@link readBuffer} now; false when it does not want to. */
  readTurn(): boolean;
}

/**
 * All writes of a thread pass through here one after the other: node:tls encrypts a single buffer before `write` returns, or copies
 * it when it cannot.
 */
const shared = Buffer.allocUnsafeSlow(WRITE_BYTES);

/**
 * Where sockets are read to that are carried over tunnels: behind the room for a frame header, so that {@link Output.sendRead} sends
 * a read without moving it, as whole TLS records when it is full. Good until the next write of any tunnel.
 */
export const readBuffer = shared.subarray(FRAME_HEADER_BYTES);

/** Immediates until a source that was let go has been read: the first may be of the turn that let it go. */
const TURNS_TO_READ = 2;

/**
 * What a tunnel sends. One write is under way at a time: the first of a turn goes at once, and what comes until it is done
 * is gathered into the next, so that many small frames make one TLS record. Frames other than DATA go first; streams take turns.
 */
export class Output {
  /** What the peer lets the connection send. */
  window = DEFAULT_WINDOW;
  maxFrameSize = DEFAULT_FRAME_SIZE;
  readonly #socket: TLSSocket;
  readonly #onDataSent: (bytes: number) => void;
  readonly #control: Buffer[] = [];
  #controlBytes = 0;
  /** Streams with something to send and a window for it, in their order. */
  #row: Outgoing[] = [];
  #writing = false;
  /** Streams whose sources wait for their turn to be read. */
  #readers: Outgoing[] = [];
  /** One of them is being read; the end of its turn is scheduled. */
  #reading = false;
  #turnsLeft = 0;
  #passing = false;
  #readWasLast = false;
  #onFinished: (() => void) | null = null;

  /** `onDataSent` is told of DATA as it goes. */
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

  /** The stream has something to send. */
  ready(stream: Outgoing): void {
    if (stream.inRow || !sendable(stream)) return;
    stream.inRow = true;
    this.#row.push(stream);
    this.flush();
  }

  /** Calls `done` when all that can be sent is handed to the socket. */
  finish(done: () => void): void {
    this.#onFinished = done;
    this.#reading = false;
    this.flush();
  }

  /** Sends what waits, unless a write is under way: then that follows. */
  flush(): void {
    if (this.#writing || this.#reading || this.#socket.destroyed) return;
    // Filling makes room, and whoever learns of it may have more to send.
    this.#writing = true;
    const length = this.#fill();
    if (length === 0) {
      this.#writing = false;
      const done = this.#onFinished;
      this.#onFinished = null;
      done?.();
      return;
    }
    this.#readWasLast = false;
    this.#socket.write(shared.subarray(0, length), this.#written);
  }

  /** Sends what stands in {@link readBuffer} as one frame, if nothing else waits and the windows allow; else false. */
  sendRead(stream: Outgoing, bytes: number): boolean {
    if (this.#writing || this.#control.length > 0) return false;
    if (bytes > Math.min(stream.sendWindow, this.window, this.maxFrameSize)) return false;
    if (stream.waiting > 0 || this.#socket.destroyed) return false;
    writeFrameHeader(shared, 0, { type: frameType.data, flags: 0, id: stream.id }, bytes);
    this.window -= bytes;
    this.#onDataSent(bytes);
    this.#writing = true;
    this.#reading = false;
    this.#readWasLast = true;
    this.#socket.write(shared.subarray(0, FRAME_HEADER_BYTES + bytes), this.#written);
    return true;
  }

  /**
   * The source of the stream is read when it is its turn: bulk sources one after the other, each when the write before is done,
   * so that {@link sendRead} can send what they bring.
   */
  awaitReadTurn(stream: Outgoing): void {
    this.#readers.push(stream);
    if (!this.#writing) this.#giveTurn();
  }

  readonly #written = (): void => {
    this.#writing = false;
    // Reads and what else there is to send take turns.
    if (!this.#readWasLast) this.#giveTurn();
    this.flush();
    if (!this.#writing) this.#giveTurn();
  };

  /** Lets the next source be read, and waits for it over one turn of the event loop. */
  #giveTurn(): void {
    if (this.#reading) return;
    do {
      const reader = this.#readers.shift();
      if (reader === undefined) return;
      this.#reading = reader.readTurn();
    } while (!this.#reading);
    this.#turnsLeft = TURNS_TO_READ;
    if (this.#passing) return;
    this.#passing = true;
    setImmediate(this.#endTurn);
  }

  /** A source that had nothing to say must not stop the others. */
  readonly #endTurn = (): void => {
    this.#turnsLeft -= 1;
    if (this.#reading && this.#turnsLeft > 0) {
      setImmediate(this.#endTurn);
      return;
    }
    this.#passing = false;
    this.#reading = false;
    if (this.#writing) return;
    this.flush();
    if (!this.#writing) this.#giveTurn();
  };

  /** Fills the shared buffer; how far. */
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
      // Stays in the row, behind the others.
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
