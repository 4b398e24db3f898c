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
import { canLeave } from './handover/handover.ts';
import type { Leaving } from './handover/handover.ts';
import { RecordTap } from './handover/record-tap.ts';
import { TrafficSecrets } from './handover/traffic-secrets.ts';

/** A verified connection. */
export interface SecuredSocket {
  readonly socket: TLSSocket;
  readonly peer: TunnelPeer;
}

/** A verified connection that can leave node:tls, or one that must stay since its protocol is older. */
export interface SecuredToLeave extends SecuredSocket {
  readonly leaving: Leaving | null;
}

/** A server handshake in progress. */
interface Handshake {
  readonly settle: (outcome: { secured: TLSSocket } | { error: unknown }) => void;
  readonly watch: Watch | null;
}

/** The watch of a handshake whose connection is to leave node:tls. */
interface Watch {
  readonly tap: RecordTap;
  readonly secrets: TrafficSecrets;
}

/** Transports in the middle of a server handshake. The TLS server reports their outcome on its own events. */
const handshakes = new WeakMap<Duplex, Handshake>();
/** Handshakes by TLS socket: a closed TLS socket does not lead to its transport any more. */
const watched = new WeakMap<TLSSocket, Handshake>();
const wiredServers = new WeakSet<Server>();
const loggedServers = new WeakSet<Server>();

/** Performs the server's handshake. On failure it destroys the socket and rejects with TLS_HANDSHAKE, TLS_PEER_IDENTITY or IDENTITY_EXPIRED. */
export function acceptTls(raw: Socket, options: TunnelOptions): Promise<SecuredSocket> {
  return accept(raw, options, null);
}

/** Like {@link acceptTls}, for a connection that leaves node:tls as soon as it is verified. */
export function acceptTlsToLeave(raw: Socket, options: TunnelOptions): Promise<SecuredToLeave> {
  return toLeave(raw, true, (watch) => accept(watch.tap, options, watch));
}

/** Like {@link connectTls}, for a connection that leaves node:tls as soon as it is verified. */
export function connectTlsToLeave(raw: Socket, options: TunnelOptions): Promise<SecuredToLeave> {
  return toLeave(raw, false, (watch) => dial(watch.tap, options, watch));
}

async function accept(
  raw: Duplex,
  options: TunnelOptions,
  watch: Watch | null,
): Promise<SecuredSocket> {
  raw.on('error', ignoreAfterHandshake);
  try {
    options.credentials.assertValid(options.clock.now());
    return await secured(await serverHandshake(raw, options.credentials.server, watch), options);
  } catch (error) {
    raw.destroy();
    throw handshakeError(error);
  }
}

/** Performs the client's handshake: no SNI, no resumption, ALPN h2 mandatory. Rejects like {@link acceptTls}. */
export function connectTls(raw: Duplex, options: TunnelOptions): Promise<SecuredSocket> {
  return dial(raw, options, null);
}

async function dial(
  raw: Duplex,
  options: TunnelOptions,
  watch: Watch | null,
): Promise<SecuredSocket> {
  raw.on('error', ignoreAfterHandshake);
  try {
    options.credentials.assertValid(options.clock.now());
    const socket = await clientHandshake(raw, options, watch);
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

async function toLeave(
  raw: Socket,
  isServer: boolean,
  shake: (watch: Watch) => Promise<SecuredSocket>,
): Promise<SecuredToLeave> {
  raw.on('error', ignoreAfterHandshake);
  const watch = { tap: new RecordTap(raw), secrets: new TrafficSecrets() };
  try {
    const secure = await shake(watch);
    if (canLeave(secure.socket)) {
      return { ...secure, leaving: { socket: secure.socket, raw, isServer, ...watch } };
    }
    watch.secrets.clear();
    watch.tap.release();
    return { ...secure, leaving: null };
  } catch (error) {
    watch.secrets.clear();
    throw error;
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

function serverHandshake(raw: Duplex, server: Server, watch: Watch | null): Promise<TLSSocket> {
  if (!wiredServers.has(server)) wire(server);
  if (watch !== null && !loggedServers.has(server)) log(server);
  return new Promise((resolve, reject) => {
    const settle: Handshake['settle'] = (outcome) => {
      handshakes.delete(raw);
      if ('secured' in outcome) {
        watch?.tap.hold();
        resolve(outcome.secured);
      } else {
        reject(
          outcome.error instanceof Error ? outcome.error : new Error(errorText(outcome.error)),
        );
      }
    };
    handshakes.set(raw, { settle, watch });
    // Nobody else reports a peer that leaves before it has said hello.
    watch?.tap.once('close', () => {
      if (!watch.secrets.begun) settle({ error: closedByPeer() });
    });
    server.emit('connection', raw);
  });
}

function closedByPeer(): Error {
  return new Error('the peer closed the connection');
}

/** Gives the secrets of the connections to those that watch them. */
function log(server: Server): void {
  loggedServers.add(server);
  server.on('keylog', (line: Buffer, socket: TLSSocket) => {
    const handshake = handshakeOf(socket);
    if (handshake?.watch === null || handshake?.watch === undefined) {
      line.fill(0);
      return;
    }
    handshake.watch.secrets.take(line);
    if (watched.has(socket)) return;
    watched.set(socket, handshake);
    // The TLS server has its say before.
    socket.once('close', () => handshake.settle({ error: closedByPeer() }));
  });
}

function wire(server: Server): void {
  wiredServers.add(server);
  server.on('secureConnection', (socket) => {
    const handshake = handshakeOf(socket);
    // Fails closed: a connection without a waiting caller is not served.
    if (handshake === undefined || !socket.authorized) socket.destroy();
    else handshake.settle({ secured: socket });
  });
  server.on('tlsClientError', (error, socket) => {
    const reason: unknown = socket.authorizationError;
    const why = reason === null || reason === undefined ? error : new Error(errorText(reason));
    handshakeOf(socket)?.settle({ error: why });
    socket.destroy();
  });
}

/**
 * The handshake of a TLS socket. node:tls keeps the wrapped socket in `_parent`, and any other transport in a wrapper below the handle;
 * neither has public access.
 */
function handshakeOf(socket: TLSSocket): Handshake | undefined {
  const known = watched.get(socket);
  if (known !== undefined) return known;
  const { _parent: parent, _handle: handle } = socket as unknown as {
    _parent?: Socket | null;
    _handle?: { readonly _parentWrap?: { readonly stream?: Duplex } } | null;
  };
  const transport = parent ?? handle?._parentWrap?.stream;
  return transport === undefined ? undefined : handshakes.get(transport);
}

function clientHandshake(
  raw: Duplex,
  options: TunnelOptions,
  watch: Watch | null,
): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      socket: raw,
      secureContext: options.credentials.clientContext,
      ALPNProtocols: [HBONE_ALPN],
      rejectUnauthorized: true,
      // Identities are SPIFFE URIs, checked by verifyPeer; there is no DNS name to compare.
      checkServerIdentity: () => undefined,
    });
    if (watch !== null) socket.on('keylog', watch.secrets.take);
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
    const closed = (): void => fail(closedByPeer());
    socket.on('error', fail);
    socket.once('close', closed);
    socket.once('secureConnect', () => {
      watch?.tap.hold();
      timer.cancel();
      socket.off('close', closed);
      resolve(socket);
    });
  });
}

function handshakeError(error: unknown): MeshError {
  return asMeshError(error, 'TLS_HANDSHAKE', 'TLS handshake failed');
}
