import { once } from 'node:events';
import { connect } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import type { ExecutionContext } from 'ava';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import { HpackEncoder } from '../../lib/hbone/session/hpack-encoder.ts';
import {
  CLIENT_PREFACE,
  headersFrames,
  settingsFrame,
  writeFrameHeader,
} from '../../lib/hbone/session/frames.ts';
import { dial } from './tunnel-kit.ts';

/** A frame from the peer. */
export interface SeenFrame {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
  readonly payload: Buffer;
}

/** Encodes a frame. */
export function rawFrame(
  type: number,
  flags: number,
  id: number,
  payload: Uint8Array = new Uint8Array(),
): Buffer {
  const bytes = Buffer.alloc(9 + payload.length);
  writeFrameHeader(bytes, 0, { type, flags, id }, payload.length);
  bytes.set(payload, 9);
  return bytes;
}

/** RST_STREAM. */
export function rstStreamFrame(id: number, code: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(code);
  return rawFrame(3, 0, id, payload);
}

/** A client that sends exactly the frames of the test, after a normal TLS handshake. */
export class RawHttp2 {
  readonly socket: TLSSocket;
  readonly frames: SeenFrame[] = [];
  readonly closed: Promise<void>;
  readonly #encoder = new HpackEncoder();
  #bytes = Buffer.alloc(0);

  constructor(socket: TLSSocket) {
    this.socket = socket;
    this.closed = new Promise((resolve) => socket.once('close', () => resolve()));
    socket.on('error', () => {});
    socket.on('data', (chunk: Buffer) => this.#take(chunk));
  }

  /** The error code of the last GOAWAY; null when none has arrived. */
  get goaway(): number | null {
    return this.frames.findLast(({ type }) => type === 7)?.payload.readUInt32BE(4) ?? null;
  }

  greet(settings: [number, number][] = []): void {
    this.greetOnly(settings);
    this.acknowledge();
  }

  /** Does the same as {@link greet}, but does not acknowledge the peer's SETTINGS. */
  greetOnly(settings: [number, number][] = []): void {
    this.socket.write(Buffer.concat([CLIENT_PREFACE, settingsFrame(settings)]));
  }

  acknowledge(): void {
    this.socket.write(rawFrame(4, 1, 0));
  }

  /** Returns the values of a setting that the peer has sent so far, in order. */
  settings(id: number): number[] {
    const values: number[] = [];
    for (const { type, flags, payload } of this.frames) {
      if (type !== 4 || flags !== 0) continue;
      for (let at = 0; at < payload.length; at += 6) {
        if (payload.readUInt16BE(at) === id) values.push(payload.readUInt32BE(at + 2));
      }
    }
    return values;
  }

  /** The connection window that the peer has granted so far, beyond HTTP/2's default. */
  get connectionWindow(): number {
    return this.frames
      .filter(({ type, id }) => type === 8 && id === 0)
      .reduce((sum, { payload }) => sum + payload.readUInt32BE(), 0);
  }

  connect(id: number, authority: string): void {
    this.request(id, [
      [':method', 'CONNECT'],
      [':authority', authority],
    ]);
  }

  /** Sends a request with exactly these headers. */
  request(id: number, headers: readonly (readonly [name: string, value: string])[]): void {
    const block = this.#encoder.encode(headers);
    this.socket.write(headersFrames(id, block, { endStream: false, maxFrameSize: 16_384 }));
  }

  #take(chunk: Buffer): void {
    this.#bytes = Buffer.concat([this.#bytes, chunk]);
    while (this.#bytes.length >= 9) {
      const length = this.#bytes.readUIntBE(0, 3);
      if (this.#bytes.length < 9 + length) return;
      this.frames.push({
        type: this.#bytes.readUInt8(3),
        flags: this.#bytes.readUInt8(4),
        id: this.#bytes.readUInt32BE(5),
        payload: Buffer.from(this.#bytes.subarray(9, 9 + length)),
      });
      this.#bytes = this.#bytes.subarray(9 + length);
    }
  }
}

/** Connects with the credentials and completes the TLS handshake. */
export async function rawHttp2(
  t: ExecutionContext,
  port: number,
  own: TunnelCredentials,
): Promise<RawHttp2> {
  const socket = connect({
    socket: await dial(t, port),
    secureContext: own.clientContext,
    checkServerIdentity: () => undefined,
    ALPNProtocols: ['h2'],
  });
  t.teardown(() => socket.destroy());
  await once(socket, 'secureConnect');
  return new RawHttp2(socket);
}
