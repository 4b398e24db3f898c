/** The TLS layer of a tunnel, over node:tls. */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect } from 'node:tls';
import type { Server, TLSSocket } from 'node:tls';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { present } from '../errors/assert.ts';
import { MeshError, asMeshError, errorText } from '../errors/mesh-error.ts';
import { HBONE_ALPN } from './credentials.ts';
import type { TunnelOptions, TunnelPeer } from './engine.ts';

/** A verified connection. */
export interface SecuredSocket {
  readonly socket: TLSSocket;
  readonly peer: TunnelPeer;
}

type Settle = (outcome: { secured: TLSSocket } | { error: unknown }) => void;

/** Sockets in the middle of a server handshake. The TLS server reports their outcome on its own events. */
const handshakes = new WeakMap<Socket, Settle>();
const wiredServers = new WeakSet<Server>();

/** Performs the server's handshake. On failure it destroys the socket and rejects with TLS_HANDSHAKE, TLS_PEER_IDENTITY or IDENTITY_EXPIRED. */
export async function acceptTls(raw: Socket, options: TunnelOptions): Promise<SecuredSocket> {
  raw.on('error', ignoreAfterHandshake);
  try {
    options.credentials.assertValid(options.clock.now());
    return await secured(await serverHandshake(raw, options.credentials.server), options);
  } catch (error) {
    raw.destroy();
    throw handshakeError(error);
  }
}

/** Performs the client's handshake: no SNI, no resumption, ALPN h2 mandatory. Rejects like {@link acceptTls}. */
export async function connectTls(raw: Duplex, options: TunnelOptions): Promise<SecuredSocket> {
  raw.on('error', ignoreAfterHandshake);
  try {
    options.credentials.assertValid(options.clock.now());
    const socket = await clientHandshake(raw, options);
    if (socket.alpnProtocol !== HBONE_ALPN) {
      socket.destroy();
      throw new MeshError('TLS_HANDSHAKE', 'the peer did not agree to speak HTTP/2 (ALPN h2)');
    }
    return await secured(socket, options);
  } catch (error) {
    raw.destroy();
    throw handshakeError(error);
  }
}

/** Keeps an error from ending the process. The TLS socket reports the errors of the raw socket that it wraps. */
function ignoreAfterHandshake(): void {}

async function secured(socket: TLSSocket, options: TunnelOptions): Promise<SecuredSocket> {
  socket.on('error', ignoreAfterHandshake);
  // Node reports a finished handshake from inside SSL_read. A TLS socket destroyed there after its raw socket is freed at once, and
  // the process crashes. A caller may destroy both in any order, so it goes on in a turn of its own.
  await nextTurn();
  if (socket.destroyed) throw socket.errored ?? new Error('the peer closed the connection');
  // A tunnel is never half-open: a peer that sends no more (its process was killed) can finish no stream. A TLS socket would take
  // half-openness over from the raw socket.
  socket.once('end', () => socket.destroy());
  const certificate: X509Certificate = present(
    socket.getPeerX509Certificate(),
    'a verified peer has a certificate',
  );
  try {
    const identity = options.verifyPeer(certificate);
    const notAfterMs = Date.parse(certificate.validTo);
    return { socket, peer: { identity, notAfterMs, certificate } };
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

function serverHandshake(raw: Socket, server: Server): Promise<TLSSocket> {
  if (!wiredServers.has(server)) wire(server);
  return new Promise((resolve, reject) => {
    handshakes.set(raw, (outcome) => {
      handshakes.delete(raw);
      if ('secured' in outcome) resolve(outcome.secured);
      else
        reject(
          outcome.error instanceof Error ? outcome.error : new Error(errorText(outcome.error)),
        );
    });
    server.emit('connection', raw);
  });
}

function wire(server: Server): void {
  wiredServers.add(server);
  server.on('secureConnection', (socket) => {
    const settle = settleOf(socket);
    // Fails closed: a connection without a waiting caller is not served.
    if (settle === undefined || !socket.authorized) socket.destroy();
    else settle({ secured: socket });
  });
  server.on('tlsClientError', (error, socket) => {
    const reason: unknown = socket.authorizationError;
    const why = reason === null || reason === undefined ? error : new Error(errorText(reason));
    settleOf(socket)?.({ error: why });
    socket.destroy();
  });
}

/** The waiting caller of a TLS socket. node:tls keeps the wrapped socket in `_parent`; it has no public access. */
function settleOf(socket: TLSSocket): Settle | undefined {
  const { _parent: raw } = socket as unknown as { _parent?: Socket };
  return raw === undefined ? undefined : handshakes.get(raw);
}

function clientHandshake(raw: Duplex, options: TunnelOptions): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      socket: raw,
      secureContext: options.credentials.clientContext,
      ALPNProtocols: [HBONE_ALPN],
      rejectUnauthorized: true,
      // Identities are SPIFFE URIs, checked by verifyPeer; there is no DNS name to compare.
      checkServerIdentity: () => undefined,
    });
    const timer = options.clock.after(options.settings.handshakeTimeoutMs, () => {
      socket.destroy(
        new MeshError(
          'TLS_HANDSHAKE',
          `no TLS handshake within ${options.settings.handshakeTimeoutMs} ms`,
        ),
      );
    });
    const fail = (error: Error): void => {
      timer.cancel();
      reject(error);
    };
    const closed = (): void => fail(new Error('the peer closed the connection'));
    socket.on('error', fail);
    socket.once('close', closed);
    socket.once('secureConnect', () => {
      timer.cancel();
      socket.off('close', closed);
      resolve(socket);
    });
  });
}

function handshakeError(error: unknown): MeshError {
  return asMeshError(error, 'TLS_HANDSHAKE', 'TLS handshake failed');
}
