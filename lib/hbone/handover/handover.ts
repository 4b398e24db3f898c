/** Moves an established TLS connection out of node:tls (docs/decisions/native-carry.md). */
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { MeshError, errorText } from '../../errors/mesh-error.ts';
import { isOrdinaryEnd } from '../../net/bidi-copy.ts';
import { countRecords, isSuite } from './records.ts';
import type { SuiteName } from './records.ts';
import type { RecordTap } from './record-tap.ts';
import type { TrafficSecrets } from './traffic-secrets.ts';

/** All that is needed to go on with a connection outside of node:tls. The secrets are valid until {@link handOver} settles. */
export interface HandedOver {
  readonly suite: SuiteName;
  readonly readSecret: Buffer;
  readonly writeSecret: Buffer;
  /** Records that OpenSSL has written under the application key. It has read none. */
  readonly writeSequence: number;
  /** Ciphertext that has been read from the socket. */
  readonly unread: Buffer;
}

/** A connection whose handshake is over, over a tap that is held. */
export interface Leaving {
  readonly socket: TLSSocket;
  readonly tap: RecordTap;
  readonly raw: Socket;
  readonly secrets: TrafficSecrets;
  readonly isServer: boolean;
}

/** Whether the connection can leave node:tls: it speaks TLS 1.3. */
export function canLeave(socket: TLSSocket): boolean {
  return socket.getProtocol() === 'TLSv1.3';
}

/**
 * Takes the connection out of node:tls and has `goOn` continue it, once OpenSSL has written all it had to. `goOn` gets the raw socket,
 * paused, and must not wait. Whatever is not as expected ends the connection: TLS_HANDSHAKE, the raw socket destroyed. The
 * secrets are cleared in any case.
 */
export async function handOver<Result>(
  leaving: Leaving,
  goOn: (raw: Socket, handed: HandedOver) => Result,
): Promise<Result> {
  const { socket, tap, raw, secrets } = leaving;
  try {
    // OpenSSL may write tickets after the handshake; an empty write ends behind all it has written.
    await flushed(socket);
    const handed = take(leaving);
    // node:tls ends its connection here. The tap lets nothing of it through.
    socket.destroy();
    return goOn(raw, handed);
  } catch (error) {
    socket.destroy();
    tap.destroy();
    raw.destroy();
    if (error instanceof MeshError) throw error;
    throw new MeshError('TLS_HANDSHAKE', `cannot carry the connection: ${errorText(error)}`, {
      cause: error,
    });
  } finally {
    secrets.clear();
  }
}

function take({ socket, tap, secrets, isServer }: Leaving): HandedOver {
  const suite = socket.getCipher().standardName;
  if (!isSuite(suite)) throw new Error(`the cipher suite ${suite} is unknown`);
  if (socket.destroyed) throw new Error('the peer closed the connection');
  const { client, server } = secrets.of(suite);
  // Bytes that OpenSSL has decrypted would mean records that it has counted.
  if (socket.readableLength > 0) throw new Error('OpenSSL has read behind the handshake');
  const taken = tap.detach();
  if (taken === null) throw new Error('OpenSSL has not written all it had to');
  const writeSecret = isServer ? server : client;
  return {
    suite,
    readSecret: isServer ? client : server,
    writeSecret,
    writeSequence: countRecords(taken.sent, suite, writeSecret),
    unread: taken.unread,
  };
}

function flushed(socket: TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    const closed = (): void => reject(new Error('the peer closed the connection'));
    if (socket.destroyed) {
      closed();
      return;
    }
    socket.once('close', closed);
    socket.write(NO_BYTES, (error) => {
      socket.off('close', closed);
      if (error === null || error === undefined) resolve();
      else if (isOrdinaryEnd(error)) closed();
      else reject(error);
    });
  });
}

const NO_BYTES = Buffer.alloc(0);
