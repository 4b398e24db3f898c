/** The TLS layer of a tunnel, over node:tls. */
import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
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
export interface SecuredSocket extends Verified {
  /** Its way out of node:tls, which gives nothing to read before; null when it must stay, since its protocol is older. */
  readonly leaving: Leaving | null;
}

interface Verified {
  readonly socket: TLSSocket;
  readonly peer: TunnelPeer;
}

/** A server handshake in progress. */
interface Handshake {
  readonly settle: (outcome: { secured: TLSSocket } | { error: unknown }) => void;
  readonly watch: Watch;
}

/** The transport of a handshake, and the secrets that OpenSSL tells of it. */
interface Watch {
  readonly tap: RecordTap;
  readonly secrets: TrafficSecrets;
}

/** Transports in the middle of a server handshake. The TLS server reports their outcome on its own events. */
const handshakes = new WeakMap<RecordTap, Handshake>();
/** Handshakes by TLS socket: a closed TLS socket does not lead to its transport any more. */
const watched = new WeakMap<TLSSocket, Handshake>();
const wiredServers = new WeakSet<Server>();

/** Performs the server's handshake. On failure it destroys the socket and rejects with TLS_HANDSHAKE, TLS_PEER_IDENTITY or IDENTITY_EXPIRED. */
export function acceptTls(raw: Socket, options: TunnelOptions): Promise<SecuredSocket> {
  return secure(raw, options, true, (watch) => {
    return serverHandshake(options.credentials.server, watch);
  });
}

/** Performs the client's handshake: no SNI, no resumption, ALPN h2 mandatory. Rejects like {@link acceptTls}. */
export function connectTls(raw: Socket, options: TunnelOptions): Promise<SecuredSocket> {
  return secure(raw, options, false, async (watch) => {
    const socket = await clientHandshake(options, watch);
    if (socket.alpnProtocol === HBONE_ALPN) return socket;
    socket.destroy();
    throw new MeshError('TLS_HANDSHAKE', 'the peer did not agree to speak HTTP/2 (ALPN h2)');
  });
}

async function secure(
  raw: Socket,
  options: TunnelOptions,
  isServer: boolean,
  shake: (watch: Watch) => Promise<TLSSocket>,
): Promise<SecuredSocket> {
  raw.on('error', ignoreAfterHandshake);
  const tap = new RecordTap(raw);
  tap.on('error', ignoreAfterHandshake);
  const secrets = new TrafficSecrets();
  try {
    options.credentials.assertValid(options.clock.now());
    const verified = await verify(await shake({ tap, secrets }), options);
    if (canLeave(verified.socket)) {
      return { ...verified, leaving: { socket: verified.socket, raw, isServer, tap, secrets } };
    }
    secrets.clear();
    tap.release();
    return { ...verified, leaving: null };
  } catch (error) {
    secrets.clear();
    tap.destroy();
    throw handshakeError(error);
  }
}

/** Keeps an error from ending the process. The TLS socket reports the errors of the raw socket that it wraps. */
function ignoreAfterHandshake(): void {}

async function verify(socket: TLSSocket, options: TunnelOptions): Promise<Verified> {
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

function serverHandshake(server: Server, watch: Watch): Promise<TLSSocket> {
  const { tap, secrets } = watch;
  if (!wiredServers.has(server)) wire(server);
  return new Promise((resolve, reject) => {
    const settle: Handshake['settle'] = (outcome) => {
      handshakes.delete(tap);
      if ('secured' in outcome) {
        tap.hold();
        resolve(outcome.secured);
      } else {
        reject(
          outcome.error instanceof Error ? outcome.error : new Error(errorText(outcome.error)),
        );
      }
    };
    handshakes.set(tap, { settle, watch });
    // Nobody else reports a peer that leaves before it has said hello.
    tap.once('close', () => {
      if (!secrets.begun) settle({ error: closedByPeer() });
    });
    server.emit('connection', tap);
  });
}

function closedByPeer(): Error {
  return new Error('the peer closed the connection');
}

function wire(server: Server): void {
  wiredServers.add(server);
  server.on('keylog', (line: Buffer, socket: TLSSocket) => {
    const handshake = handshakeOf(socket);
    if (handshake === undefined) {
      line.fill(0);
      return;
    }
    handshake.watch.secrets.take(line);
    if (watched.has(socket)) return;
    watched.set(socket, handshake);
    // The TLS server has its say before.
    socket.once('close', () => handshake.settle({ error: closedByPeer() }));
  });
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

/** The handshake of a TLS socket. node:tls keeps its transport in a wrapper below the handle, to which there is no public access. */
function handshakeOf(socket: TLSSocket): Handshake | undefined {
  const known = watched.get(socket);
  if (known !== undefined) return known;
  const { _handle: handle } = socket as unknown as {
    _handle?: { readonly _parentWrap?: { readonly stream?: RecordTap } } | null;
  };
  const tap = handle?._parentWrap?.stream;
  return tap === undefined ? undefined : handshakes.get(tap);
}

function clientHandshake(options: TunnelOptions, { tap, secrets }: Watch): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect({
      socket: tap,
      secureContext: options.credentials.clientContext,
      ALPNProtocols: [HBONE_ALPN],
      rejectUnauthorized: true,
      // Identities are SPIFFE URIs, checked by verifyPeer; there is no DNS name to compare.
      checkServerIdentity: () => undefined,
    });
    socket.on('keylog', secrets.take);
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
      tap.hold();
      timer.cancel();
      socket.off('close', closed);
      resolve(socket);
    });
  });
}

function handshakeError(error: unknown): MeshError {
  return asMeshError(error, 'TLS_HANDSHAKE', 'TLS handshake failed');
}
