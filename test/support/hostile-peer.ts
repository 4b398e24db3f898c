/** A peer with a good certificate that speaks HTTP/2 frame by frame, and does not behave. */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import {
  CLIENT_PREFACE,
  FRAME_HEADER_BYTES,
  frameFlag,
  frameType,
  settingsAckFrame,
  settingsFrame,
  writeFrameHeader,
} from '../../lib/hbone/session/frames.ts';

/** A tunnel whose frames a test writes itself. */
export interface HostilePeer {
  readonly socket: TLSSocket;
  /** Resolves when the other end has closed the connection. */
  readonly closed: Promise<void>;
  /** Whether it has. */
  readonly ended: boolean;
  /** Writes until everything is sent or the connection is closed, waiting where the socket is full. */
  send(frames: Iterable<Buffer>): Promise<void>;
}

/** Differences from a peer that sends the preface with empty SETTINGS, and reads. */
export interface HostilePeerOptions {
  readonly settings?: readonly (readonly [id: number, value: number])[];
  readonly read?: boolean;
  readonly preface?: boolean;
}

/** Finishes TLS and sends the preface and SETTINGS; without `read` nothing that comes is ever looked at. */
export async function hostilePeer(
  raw: Socket,
  own: TunnelCredentials,
  options: HostilePeerOptions = {},
): Promise<HostilePeer> {
  const socket = connectTls({
    socket: raw,
    secureContext: own.clientContext,
    ALPNProtocols: ['h2'],
    checkServerIdentity: () => undefined,
  });
  socket.on('error', () => {});
  raw.on('error', () => {});
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => resolve());
    raw.once('close', () => resolve());
  });
  await Promise.race([once(socket, 'secureConnect').catch(ignore), closed]);
  if (options.read !== false) {
    socket.resume();
    socket.once('end', () => socket.destroy());
  }
  if (options.preface !== false && socket.writable) {
    socket.write(Buffer.concat([CLIENT_PREFACE, settingsFrame(options.settings ?? [])]));
    socket.write(settingsAckFrame());
  }
  return {
    socket,
    closed,
    get ended() {
      return raw.destroyed || socket.destroyed;
    },
    async send(frames) {
      for (const bytes of frames) {
        if (!socket.writable) return;
        if (!socket.write(bytes)) await Promise.race([once(socket, 'drain').catch(ignore), closed]);
      }
    },
  };
}

/** A frame of any kind. */
export function frame(
  type: number,
  flags: number,
  id: number,
  payload: Buffer = Buffer.alloc(0),
): Buffer {
  const bytes = Buffer.alloc(FRAME_HEADER_BYTES + payload.length);
  writeFrameHeader(bytes, 0, { type, flags, id }, payload.length);
  payload.copy(bytes, FRAME_HEADER_BYTES);
  return bytes;
}

/** A CONNECT in one HEADERS frame. */
export function connectFrame(id: number, authority: string): Buffer {
  const block = headerBlock([
    [':method', 'CONNECT'],
    [':authority', authority],
  ]);
  return frame(frameType.headers, frameFlag.endHeaders, id, block);
}

/** Fields as literals that no table keeps (RFC 7541 §6.2.2). */
export function headerBlock(fields: readonly (readonly [name: string, value: string])[]): Buffer {
  return Buffer.concat(
    fields.flatMap(([name, value]) => [Buffer.of(0), literal(name), literal(value)]),
  );
}

function literal(text: string): Buffer {
  const bytes = Buffer.from(text, 'latin1');
  const length: number[] = [];
  if (bytes.length < 127) length.push(bytes.length);
  else {
    length.push(127);
    let rest = bytes.length - 127;
    for (; rest >= 128; rest >>>= 7) length.push((rest & 127) | 128);
    length.push(rest);
  }
  return Buffer.concat([Buffer.from(length), bytes]);
}

/** The end of the connection is seen by `closed`. */
function ignore(): void {}
