/** Verified TLS connections that stay in node:tls, for peers that speak HTTP/2 by themselves. */
import type { Socket } from 'node:net';
import { TLSSocket, connect } from 'node:tls';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { present } from '../../lib/errors/assert.ts';
import { asMeshError } from '../../lib/errors/mesh-error.ts';
import type { TunnelOptions, TunnelPeer } from '../../lib/hbone/engine.ts';

/** A verified connection. */
export interface StayingSocket {
  readonly socket: TLSSocket;
  readonly peer: TunnelPeer;
}

type Settle = (outcome: TLSSocket | Error) => void;

/** Performs the server's handshake. Destroys the socket and rejects with a MeshError if it fails. */
export function acceptStaying(raw: Socket, options: TunnelOptions): Promise<StayingSocket> {
  return verified(raw, options, (settle) => {
    const socket = new TLSSocket(raw, {
      isServer: true,
      // A context of OpenSSL serves both roles.
      secureContext: options.credentials.clientContext,
      ALPNProtocols: ['h2'],
      requestCert: true,
      rejectUnauthorized: true,
    });
    watch(socket, settle);
    socket.once('_tlsError', settle);
    socket.once('secure', () => {
      // Only a server of node:tls does this by itself.
      const own = socket as unknown as {
        readonly _handle: { verifyError(): Error | null };
        secureConnecting: boolean;
      };
      own.secureConnecting = false;
      settle(own._handle.verifyError() ?? socket);
    });
  });
}

/** Performs the client's handshake, like {@link acceptStaying}. */
export function connectStaying(raw: Socket, options: TunnelOptions): Promise<StayingSocket> {
  return verified(raw, options, (settle) => {
    const socket = connect({
      socket: raw,
      secureContext: options.credentials.clientContext,
      ALPNProtocols: ['h2'],
      rejectUnauthorized: true,
      checkServerIdentity: () => undefined,
    });
    watch(socket, settle);
    socket.once('secureConnect', () => {
      settle(socket.alpnProtocol === 'h2' ? socket : new Error('the peer did not agree to h2'));
    });
  });
}

function watch(socket: TLSSocket, settle: Settle): void {
  socket.on('error', settle);
  socket.once('close', () => settle(new Error('the peer closed the connection')));
}

async function verified(
  raw: Socket,
  { credentials, verifyPeer, clock }: TunnelOptions,
  shake: (settle: Settle) => void,
): Promise<StayingSocket> {
  raw.on('error', ignore);
  try {
    credentials.assertValid(clock.now());
    const outcome = await new Promise<TLSSocket | Error>(shake);
    if (outcome instanceof Error) throw outcome;
    outcome.on('error', ignore);
    // Node reports a handshake from inside SSL_read, where the socket must not be destroyed.
    await nextTurn();
    outcome.once('end', () => outcome.destroy());
    const certificate = present(outcome.getPeerX509Certificate(), 'the peer has a certificate');
    const notAfterMs = Date.parse(certificate.validTo);
    const identity = verifyPeer(certificate);
    return { socket: outcome, peer: { identity, notAfterMs, certificate } };
  } catch (error) {
    raw.destroy();
    throw asMeshError(error, 'TLS_HANDSHAKE', 'TLS handshake failed');
  }
}

function ignore(): void {}
