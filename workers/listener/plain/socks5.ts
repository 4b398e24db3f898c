/** A connection that asks for its destination on 15080 (docs/spec/dataplane.md §12). */
import type { Socket } from 'node:net';
import type { TunnelPool } from '../../../lib/hbone/pool.ts';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { canonicalIp, formatHostPort, ipFamily } from '../../../lib/net/address.ts';
import { RawSocket } from '../../../lib/net/raw-socket.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import {
  SOCKS_FAILURE,
  SocksNegotiation,
  socksGranted,
  socksRefused,
} from '../../../lib/net/socks5.ts';
import type { SocksFailure, SocksTarget } from '../../../lib/net/socks5.ts';
import type { PodDns } from '../dns/pod-dns.ts';
import { SOCKS_HANDSHAKE_MS } from '../limits.ts';
import { serveOutbound } from '../outbound.ts';
import type { PodContext } from '../thread-context.ts';

/** Dependencies of a pod's SOCKS5 connections. */
export interface SocksParts {
  /** Tunnels of its own (docs/spec/hbone.md §5). */
  readonly pool: TunnelPool;
  /** Null when the DNS proxy is off: names cannot be asked for then. */
  readonly dns: PodDns | null;
}

/** A request that cannot be served, with the code of its reply. */
class Refusal extends Error {
  readonly code: SocksFailure;

  constructor(code: SocksFailure, message: string) {
    super(message);
    this.code = code;
  }
}

/** Negotiates, then serves the connection to its end as one that was captured. Never rejects. */
export async function serveSocks(
  pod: PodContext,
  accepted: { readonly socket: Socket; readonly source: Endpoint; readonly local: Endpoint },
  parts: SocksParts,
): Promise<void> {
  const { socket, source, local } = accepted;
  let wanted = formatEndpoint(local);
  try {
    const target = await negotiate(pod, socket);
    wanted = formatHostPort(target.kind === 'ip' ? target.ip : target.name, target.port);
    const destination = { ip: await addressOf(target, source, parts.dns), port: target.port };
    if (socket.destroyed) throw new MeshError('UPSTREAM_CONNECT', 'the client is gone');
    socket.write(socksGranted());
    await serveOutbound(
      pod,
      { socket: new RawSocket(socket), source, local, destination },
      parts.pool,
    );
  } catch (error) {
    const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    // Sent, then closed: a reset would take the reply with it.
    socket.end(socksRefused(error instanceof Refusal ? error.code : SOCKS_FAILURE.general));
    socket.resume();
    pod.thread.clock.after(SOCKS_HANDSHAKE_MS, () => socket.destroy());
    socket.once('end', () => socket.destroy());
    const failure = asMeshError(error, 'ADDRESS_INVALID', `SOCKS5: ${textOf(error)}`);
    const ends = { source: formatEndpoint(source), destination: wanted };
    pod.deny({ ...ends, direction: 'outbound' }, failure);
    if (!socket.closed) await closed;
  }
}

/** The request of a client, the socket paused behind it. Rejects with a {@link Refusal} or UPSTREAM_TIMEOUT. */
async function negotiate(pod: PodContext, socket: Socket): Promise<SocksTarget> {
  const negotiation = new SocksNegotiation();
  const { promise, resolve, reject } = Promise.withResolvers<SocksTarget>();
  const timer = pod.thread.clock.after(SOCKS_HANDSHAKE_MS, () =>
    reject(new MeshError('UPSTREAM_TIMEOUT', `no request within ${SOCKS_HANDSHAKE_MS} ms`)),
  );
  const gone = (): void => reject(new MeshError('UPSTREAM_CONNECT', 'the client went away'));
  const read = (bytes: Buffer): void => {
    negotiation.push(bytes);
    for (;;) {
      const step = negotiation.next();
      if (step.kind === 'more') return;
      if (step.kind === 'send') {
        socket.write(step.bytes);
        continue;
      }
      socket.pause();
      socket.off('data', read);
      if (step.kind === 'refuse') reject(new Refusal(SOCKS_FAILURE.unsupported, step.reason));
      else {
        if (step.rest.length > 0) socket.unshift(step.rest);
        resolve(step.target);
      }
      return;
    }
  };
  socket.on('data', read);
  socket.once('end', gone);
  socket.once('close', gone);
  socket.resume();
  try {
    return await promise;
  } finally {
    timer.cancel();
    socket.off('data', read);
    socket.off('end', gone);
    socket.off('close', gone);
  }
}

async function addressOf(
  target: SocksTarget,
  source: Endpoint,
  dns: PodDns | null,
): Promise<string> {
  if (target.kind === 'ip') return canonicalIp(target.ip);
  if (dns === null) throw new Refusal(SOCKS_FAILURE.unsupported, 'names need the DNS proxy');
  try {
    const [first] = await dns.resolve(target.name, ipFamily(source.ip) ?? 4);
    if (first !== undefined) return canonicalIp(first);
  } catch (error) {
    throw new Refusal(SOCKS_FAILURE.unreachable, textOf(error));
  }
  throw new Refusal(SOCKS_FAILURE.unreachable, 'the name has no address');
}

function textOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
