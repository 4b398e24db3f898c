import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { TunnelStream } from '../../lib/hbone/engine.ts';
import { isExhausted } from '../../lib/linux/errno.ts';
import { openTcp } from '../../lib/linux/sockets.ts';
import { ipFamily } from '../../lib/net/address.ts';
import type { Copy, CopyEnd } from '../../lib/net/bidi-copy.ts';
import { connectRaw } from '../../lib/net/connect-tcp.ts';
import type { RawSocket } from '../../lib/net/raw-socket.ts';
import { formatEndpoint } from '../../lib/net/socket.ts';
import type { Endpoint } from '../../lib/net/socket.ts';
import { KEPT_SOURCE_MARK, PROXY_PACKET_MARK } from '../../lib/redirect/rules.ts';
import type { Connection } from './telemetry/connection.ts';
import type { PodContext } from './thread-context.ts';
import type { ConnectTarget } from './telemetry/thread-metrics.ts';

/** How a socket to the next hop is made. */
export interface UpstreamRequest {
  readonly to: Endpoint;
  /** The client's address to appear as, null to use our own. */
  readonly source: string | null;
  /** A local address to bind to, null for any. */
  readonly bindLoopback: string | null;
  /** True for a tunnel: a peer that acknowledges nothing any more is given up sooner. */
  readonly tunnel?: boolean;
  /** Less time than the settings give a connect, milliseconds. */
  readonly limitMs?: number | null;
}

/**
 * Connects from inside the pod's namespace. Rejects with UPSTREAM_CONNECT, UPSTREAM_TIMEOUT or NATIVE_SYSCALL,
 * TUNNEL_CLOSED once the pod has ended. A cut of `connection` gives the attempt up.
 */
export async function connectUpstream(
  pod: PodContext,
  request: UpstreamRequest,
  connection: Connection | null,
): Promise<RawSocket> {
  connection?.assertNotCut();
  // The caller may have waited, and the descriptor of the namespace may be another pod's by now.
  if (pod.ended) throw new MeshError('TUNNEL_CLOSED', 'the pod has ended');
  const { clock, descriptors, metrics, settings } = pod.thread;
  const target = connectTarget(connection);
  const fd = descriptors.make(() => openSocket(pod, request, target));
  const startedMs = clock.monotonic();
  const connecting = connectRaw(fd, request.to, {
    timeoutMs: Math.min(settings.connectTimeoutMs, request.limitMs ?? Infinity),
    onAttempt: (attempt) => connection?.onCut(() => attempt.destroy()),
  });
  const socket = connecting instanceof Promise ? await connecting : connecting;
  metrics.connects[target].observe(clock.monotonic() - startedMs);
  connection?.assertNotCut();
  return socket;
}

/** The peer to connect to. A tunnel serves more than one connection, so it comes without one. */
function connectTarget(connection: Connection | null): ConnectTarget {
  if (connection === null) return 'tunnel';
  return connection.facts.direction === 'inbound' ? 'application' : 'passthrough';
}

/** A tunnel stream as one end of a copy. */
export function streamEnd(stream: TunnelStream): CopyEnd {
  return new StreamEnd(stream);
}

/** A class, as a getter in an object literal is defined anew for each connection. */
class StreamEnd implements CopyEnd {
  readonly #stream: TunnelStream;

  constructor(stream: TunnelStream) {
    this.#stream = stream;
  }

  /** Only made when it is asked for. */
  get duplex(): CopyEnd['duplex'] {
    return this.#stream.duplex;
  }

  carry(...[socket, socketIs]: Parameters<NonNullable<CopyEnd['carry']>>): Copy | null {
    return this.#stream.carry?.(socket, socketIs) ?? null;
  }

  abort(...[why]: Parameters<CopyEnd['abort']>): void {
    this.#stream.reset(why);
  }
}

/** SO_MARK of the pod's sockets; redirection tells by it what is the proxy's own, and nothing redirects the proxy itself. */
export function markOf({ pod, thread }: Pick<PodContext, 'pod' | 'thread'>): number {
  return pod.own === true ? 0 : thread.settings.packetMark;
}

/** SO_MARK of what the pod listens on, and of its UDP. */
export function listenerMarkOf(pod: Pick<PodContext, 'pod' | 'thread'>): number {
  return pod.thread.settings.marksUpstreamOnly === true ? 0 : markOf(pod);
}

/** SO_MARK of a socket that appears as the client; a mark that rules of somebody else look for stays as it is. */
function keptSourceMark(mark: number): number {
  return mark === PROXY_PACKET_MARK ? KEPT_SOURCE_MARK : mark;
}

function openSocket(pod: PodContext, request: UpstreamRequest, target: ConnectTarget): number {
  const { settings, tcpOptions } = pod.thread;
  const { to, source, bindLoopback, tunnel } = request;
  const local = target === 'application';
  const family = ipFamily(to.ip);
  if (family === null) {
    throw new MeshError('UPSTREAM_CONNECT', `not an address: ${formatEndpoint(to)}`);
  }
  const usual = tcpOptions.userTimeoutMs ?? 0;
  const userTimeoutMs = tunnel === true ? settings.tunnelUserTimeoutMs : usual;
  const { netnsFd } = pod;
  const mark = markOf(pod);
  const plain = { ...tcpOptions, netnsFd, family, mark, userTimeoutMs, local } as const;
  if (bindLoopback !== null) return openTcp({ ...plain, bindLoopback });
  // A workload that reaches itself through a service would have the same address at both ends.
  if (source === null || source === to.ip || ipFamily(source) !== family) return openTcp(plain);
  try {
    return openTcp({ ...plain, mark: keptSourceMark(mark), source: { ip: source } });
  } catch (error) {
    // Without a descriptor nothing else would help.
    if (isExhausted(error)) throw error;
    pod.sourceLost(error);
    return openTcp(plain);
  }
}
