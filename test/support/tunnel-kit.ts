import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { TunnelCredentials } from '../../lib/hbone/credentials.ts';
import type {
  ClientTunnel,
  HboneEngine,
  IncomingRequest,
  ServerTunnel,
  TunnelOptions,
  TunnelSettings,
  TunnelStream,
} from '../../lib/hbone/engine.ts';

export const KIB = 1024;
export const MIB = 1024 * KIB;

export const testSettings: TunnelSettings = {
  streamWindow: 4 * MIB,
  connectionWindow: 16 * MIB,
  frameSize: MIB,
  maxStreams: 100,
  // Nor a silent one: all tests of a file share one event loop.
  pingIntervalMs: 60_000,
  pingTimeoutMs: 120_000,
  // Long, so that a busy machine does not count as a slow peer.
  handshakeTimeoutMs: 60_000,
};

/** Returns the identity of the first URI SAN; lib/identity/peer-verify does all further checks. */
export function anyPeer(certificate: X509Certificate): string {
  const uri = /URI:([^,]+)/.exec(certificate.subjectAltName ?? '')?.[1];
  if (uri === undefined) throw new MeshError('TLS_PEER_IDENTITY', 'the peer has no identity');
  return uri;
}

export function tunnelOptions(
  credentials: TunnelCredentials,
  settings: Partial<TunnelSettings> = {},
): TunnelOptions {
  return {
    credentials,
    verifyPeer: anyPeer,
    settings: { ...testSettings, ...settings },
    clock: systemClock,
  };
}

export interface ServerFixture {
  readonly port: number;
  readonly server: Server;
  /** Tunnels in order of arrival. */
  readonly tunnels: ServerTunnel[];
  /** Handshakes that failed. */
  readonly failures: MeshError[];
  readonly requestErrors: unknown[];
}

/** Starts a server of the engine that passes requests to `onRequest`. */
export async function serveTunnels(
  t: ExecutionContext,
  engine: HboneEngine,
  options: TunnelOptions,
  onRequest: (request: IncomingRequest, tunnel: ServerTunnel) => Promise<void>,
): Promise<ServerFixture> {
  const tunnels: ServerTunnel[] = [];
  const failures: MeshError[] = [];
  const requestErrors: unknown[] = [];
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => {
    engine
      .serve(socket, {
        ...options,
        onRequest,
        onRequestError: (error) => requestErrors.push(error),
      })
      .then(
        (tunnel) => tunnels.push(tunnel),
        (error: unknown) => {
          if (error instanceof MeshError) failures.push(error);
          else t.fail(`not a MeshError: ${String(error)}`);
        },
      );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => {
    for (const tunnel of tunnels) tunnel.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, server, tunnels, failures, requestErrors };
}

/** Connects a TCP socket; the end of the test destroys it. */
export async function dial(t: ExecutionContext, port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  t.teardown(() => socket.destroy());
  await once(socket, 'connect');
  return socket;
}

/** Opens a client tunnel to the port. */
export async function openTunnel(
  t: ExecutionContext,
  engine: HboneEngine,
  port: number,
  options: TunnelOptions,
): Promise<ClientTunnel> {
  const tunnel = await engine.connect(await dial(t, port), options);
  t.teardown(() => tunnel.destroy());
  return tunnel;
}

export const request = { authority: '10.0.0.1:8080', headers: {} };

/** Echoes a request's bytes and ends when the client does. */
export function echo(incoming: IncomingRequest): Promise<void> {
  const stream = incoming.accept({});
  if (stream !== null) stream.duplex.pipe(stream.duplex);
  return Promise.resolve();
}

/** Reads all bytes until the end of the readable side. */
export async function readAll(duplex: Duplex): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of duplex.iterator({ destroyOnReturn: false })) {
    chunks.push(chunk as Buffer);
  }
  return Buffer.concat(chunks);
}

/** Reads until the other side ends. Returns the bytes, and whether it was a clean end or a reset. */
export async function readToEnd(
  duplex: Duplex,
): Promise<{ readonly bytes: Buffer; readonly end: 'clean' | 'reset' }> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of duplex.iterator({ destroyOnReturn: false })) {
      chunks.push(chunk as Buffer);
    }
  } catch {
    return { bytes: Buffer.concat(chunks), end: 'reset' };
  }
  return { bytes: Buffer.concat(chunks), end: 'clean' };
}

/**
 * Reads a half-open TCP socket to its end, like `readToEnd`. Node reports an end if a reset arrives together with bytes. The kernel still
 * has the reset and reports it to the next write.
 */
export async function readSocketToEnd(socket: Socket): ReturnType<typeof readToEnd> {
  const { bytes, end } = await readToEnd(socket);
  if (end === 'reset') return { bytes, end };
  const failure = await new Promise((resolve) => socket.write('?', resolve));
  return { bytes, end: failure instanceof Error ? 'reset' : 'clean' };
}

/** Resolves when the stream has closed, cleanly or not. */
export function closedBy(duplex: Duplex): Promise<void> {
  duplex.on('error', () => {});
  return new Promise((resolve) => {
    if (duplex.closed) resolve();
    else duplex.once('close', resolve);
  });
}

/** Sends bytes, ends, and returns the received bytes. */
export async function roundTrip(stream: TunnelStream, bytes: Buffer | string): Promise<Buffer> {
  stream.duplex.end(bytes);
  return readAll(stream.duplex);
}
