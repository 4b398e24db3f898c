import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { RECORD_HEADER_BYTES, RECORD_TYPE, recordLength } from './records.ts';

type Done = (error?: Error | null) => void;

/** The state of a connection that leaves node:tls. */
export interface Detached {
  /** Encrypted records written by OpenSSL, in order, from the first one of the connection. */
  readonly sent: readonly Buffer[];
  /** Ciphertext that OpenSSL has not seen. It may end inside of a record. */
  readonly unread: Buffer;
}

/**
 * The transport of a TLS handshake that ends outside of node:tls. It gives OpenSSL one record in a turn, so that OpenSSL has read
 * nothing behind the last record of the handshake. It keeps the encrypted records that OpenSSL writes, so that they can be counted.
 */
export class RecordTap extends Duplex {
  readonly #raw: Socket;
  #state: 'handshake' | 'held' | 'open' | 'taken' = 'handshake';
  /** Bytes of the peer that wait for their turn. */
  #input: Buffer[] = [];
  #feeding = false;
  #ended = false;
  #sent: Buffer[] = [];
  /** The part of a record that OpenSSL has written so far. */
  #partial: Buffer = NO_BYTES;

  constructor(raw: Socket) {
    super({ allowHalfOpen: true });
    this.#raw = raw;
    raw.on('data', this.#onData);
    raw.once('end', this.#onEnd);
    raw.once('error', this.#onError);
    raw.once('close', this.#onClose);
    if (raw.destroyed) queueMicrotask(this.#onClose);
    else raw.resume();
  }

  /** The handshake is over: gives OpenSSL nothing more. */
  hold(): void {
    if (this.#state === 'handshake') this.#state = 'held';
    this.#raw.pause();
  }

  /** Goes on as a plain transport, for a connection that stays in node:tls. */
  release(): void {
    if (this.#state !== 'held') return;
    this.#state = 'open';
    this.#sent = [];
    this.#feed();
  }

  /**
   * Takes the connection away from node:tls. From now on nothing that OpenSSL writes reaches the socket, which is the caller's, paused.
   * Returns null when the connection is not in the state to be taken: it is closed, not held, or bytes of OpenSSL still wait.
   */
  detach(): Detached | null {
    const raw = this.#raw;
    const flushed =
      this.#partial.length === 0 && this.writableLength === 0 && raw.writableLength === 0;
    if (this.#state !== 'held' || raw.destroyed || this.#feeding || !flushed) return null;
    this.#state = 'taken';
    raw.off('data', this.#onData);
    raw.off('end', this.#onEnd);
    raw.off('error', this.#onError);
    raw.off('close', this.#onClose);
    for (let chunk = read(raw); chunk !== null; chunk = read(raw)) this.#input.push(chunk);
    const taken = { sent: this.#sent, unread: Buffer.concat(this.#input) };
    this.#input = [];
    this.#sent = [];
    return taken;
  }

  /** During the handshake OpenSSL takes each record at once. */
  override _read(): void {
    if (this.#state === 'open' && !this.#ended) this.#raw.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    if (this.#state === 'taken') {
      // Its sequence number may be in use already.
      done(new Error('the connection has left node:tls'));
      return;
    }
    if (this.#state !== 'open') this.#note(chunk);
    this.#raw.write(chunk, done);
  }

  override _final(done: Done): void {
    if (this.#state !== 'taken') this.#raw.end();
    done();
  }

  override _destroy(error: Error | null, done: Done): void {
    if (this.#state !== 'taken') this.#raw.destroy();
    done(error);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#input.push(chunk);
    this.#feed();
  };

  readonly #onEnd = (): void => {
    this.#ended = true;
    this.#feed();
  };

  readonly #onError = (error: Error): void => {
    this.destroy(error);
  };

  readonly #onClose = (): void => {
    this.destroy();
  };

  readonly #nextTurn = (): void => {
    this.#feeding = false;
    this.#feed();
  };

  #feed(): void {
    if (this.#feeding || this.destroyed) return;
    if (this.#state === 'open') this.#pass();
    else if (this.#state === 'handshake') this.#feedRecord();
  }

  /** Gives OpenSSL the next record, and the one after it in another turn. */
  #feedRecord(): void {
    let input = this.#input[0] ?? NO_BYTES;
    if (this.#input.length > 1) {
      input = Buffer.concat(this.#input);
      this.#input = [input];
    }
    const length = recordLength(input);
    if (length === 'not-tls' || (length !== null && input.length >= length)) {
      // OpenSSL refuses what is no record, and says why.
      const bytes = length === 'not-tls' ? input.length : length;
      this.#input = bytes < input.length ? [input.subarray(bytes)] : [];
      this.#feeding = true;
      setImmediate(this.#nextTurn);
      this.#raw.pause();
      this.push(input.subarray(0, bytes));
    } else if (this.#ended) {
      this.push(null);
    } else {
      this.#raw.resume();
    }
  }

  #pass(): void {
    let isWanted = true;
    for (const chunk of this.#input.splice(0)) isWanted = this.push(chunk);
    if (this.#ended) this.push(null);
    else if (isWanted) this.#raw.resume();
    else this.#raw.pause();
  }

  /** Cuts the bytes of OpenSSL into records and keeps the encrypted ones. */
  #note(chunk: Buffer): void {
    let rest = this.#partial.length === 0 ? chunk : Buffer.concat([this.#partial, chunk]);
    while (rest.length >= RECORD_HEADER_BYTES) {
      const length = recordLength(rest);
      if (typeof length !== 'number' || rest.length < length) break;
      if (rest[0] === RECORD_TYPE.applicationData) {
        this.#sent.push(Buffer.from(rest.subarray(0, length)));
      }
      rest = rest.subarray(length);
    }
    this.#partial = rest.length === 0 ? NO_BYTES : Buffer.from(rest);
  }
}

const NO_BYTES = Buffer.alloc(0);

function read(socket: Socket): Buffer | null {
  return socket.readableLength > 0 ? (socket.read() as Buffer | null) : null;
}
