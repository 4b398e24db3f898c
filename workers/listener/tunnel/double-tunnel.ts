/** A connection to another network: a tunnel inside a stream of a tunnel to that network's gateway (docs/spec/hbone.md §10). */
import { withTimeLimit } from '../../../lib/async/time-limit.ts';
import { MeshError, asMeshError } from '../../../lib/errors/mesh-error.ts';
import { innerHeaders } from '../../../lib/hbone/connect-request.ts';
import type {
  ClientTunnel,
  LocalStream,
  OpenRequest,
  TunnelStream,
} from '../../../lib/hbone/engine.ts';
import type { TunnelKey, TunnelPool } from '../../../lib/hbone/pool.ts';
import { verifyServerIdentity } from '../../../lib/identity/peer-verify.ts';
import type { CopyEnd } from '../../../lib/net/bidi-copy.ts';
import type { Connection } from '../telemetry/connection.ts';
import { INNER_TUNNEL_CLOSE_MS } from '../limits.ts';
import type { PodContext } from '../thread-context.ts';
import { streamEnd } from '../upstream.ts';

/** The destination of the connection. */
export interface DoubleRequest {
  readonly pool: TunnelPool;
  /** The tunnel to the gateway. */
  readonly gateway: TunnelKey;
  /** Identities accepted behind the gateway; none when empty. */
  readonly innerIdentities: readonly string[];
  /** The request to both tunnels. */
  readonly connect: OpenRequest;
  /** Tunnels to the gateway that failed just now. */
  readonly avoid: ReadonlySet<ClientTunnel>;
  /** For all that comes before the far end is asked, milliseconds; null: its parts have limits of their own. */
  readonly limitMs: number | null;
  /** The far end is asked now: until then no application can have been reached. */
  readonly onAsk: () => void;
}

/** A connection that both tunnels carry. */
export interface DoubleStream {
  readonly end: CopyEnd;
  /** Response headers of the inner request. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  /** The peer inside. */
  readonly identity: string;
}

/**
 * Opens the outer stream on a pooled tunnel, and a tunnel of its own inside, which ends with the connection.
 * Rejects with what either failed with, and leaves neither behind.
 */
export async function openDouble(
  pod: PodContext,
  request: DoubleRequest,
  connection: Connection,
): Promise<DoubleStream> {
  // Refused before the gateway is troubled: no certificate can satisfy it.
  if (request.innerIdentities.length === 0) {
    throw new MeshError(
      'TLS_PEER_IDENTITY',
      'the service names no identities (subjectAltNames) that could answer for it on the other network',
    );
  }
  const { clock } = pod.thread;
  const { limitMs, avoid } = request;
  const startedMs = clock.monotonic();
  const inTime = <T>(work: Promise<T>, release: (late: T) => void): Promise<T> => {
    const leftMs = limitMs === null ? null : Math.max(0, startedMs + limitMs - clock.monotonic());
    const what = `no tunnel through ${request.gateway.destinationIp}`;
    return withTimeLimit(clock, work, { limitMs: leftMs, what, release });
  };
  const outer = request.pool.open(request.gateway, request.connect, { avoid, limitMs });
  const carrier = await inTime(outer, (late) => late.reset());
  connection.onCut(() => carrier.reset('cut'));
  let local: LocalStream | null = null;
  let tunnel: ClientTunnel | null = null;
  try {
    connection.assertNotCut();
    local = carrier.toSocket();
    tunnel = await inTime(connectInner(pod, request, local), (late) => late.destroy());
    connection.assertNotCut();
    request.onAsk();
    const stream = await tunnel.open(innerRequest(pod, request));
    connection.assertNotCut();
    endTogether(pod, carrier, local, tunnel);
    return {
      end: streamEnd(stream),
      headers: stream.headers,
      identity: tunnel.peer.identity,
    };
  } catch (error) {
    tunnel?.destroy();
    carrier.reset();
    local?.socket.destroy();
    throw error;
  }
}

/** Begins the tunnel inside. It fails with the stream that carries it. */
async function connectInner(
  pod: PodContext,
  request: DoubleRequest,
  { socket, onOver }: LocalStream,
): Promise<ClientTunnel> {
  const { certificates, engine, clock, tunnelSettings } = pod.thread;
  // An error may come before the handshake begins, which finds the socket destroyed then.
  socket.on('error', () => {});
  let failure: Error | null = null;
  onOver((error) => {
    failure = error;
    if (error !== null) socket.destroy(error);
  });
  const credentials = await certificates.get(request.gateway.sourceIdentity);
  // An inner handshake costs the thread as much as an outer one.
  await pod.thread.handshakeTurns.turn(pod.pod.uid);
  if (socket.destroyed) {
    throw socket.errored ?? new MeshError('TLS_HANDSHAKE', 'the gateway ended the connection');
  }
  const connecting = engine.connect(socket, {
    credentials,
    verifyPeer: (certificate) => verifyServerIdentity(certificate, request.innerIdentities),
    settings: tunnelSettings,
    clock,
    bytes: pod.bytes,
  });
  const tunnel = await connecting.catch((error: unknown) => {
    throw failure ?? error;
  });
  onOver((error) => {
    if (error !== null) tunnel.destroy(asMeshError(error, 'TUNNEL_RESET'));
  });
  return tunnel;
}

function innerRequest(pod: PodContext, { connect }: DoubleRequest): OpenRequest {
  const headers = innerHeaders(connect.headers, pod.thread.settings.network);
  return { authority: connect.authority, headers };
}

/** The inner tunnel carries one stream and goes with it; the outer stream goes with the inner tunnel. */
function endTogether(
  pod: PodContext,
  carrier: TunnelStream,
  { onOver }: LocalStream,
  tunnel: ClientTunnel,
): void {
  let ends = false;
  const end = (): void => {
    if (ends || tunnel.streams > 0) return;
    ends = true;
    // Not destroyed at once: the last bytes may still be on their way out.
    tunnel.drain();
    void tunnel.closed.then(() => {
      const timer = pod.thread.clock.after(INNER_TUNNEL_CLOSE_MS, () => carrier.reset());
      onOver(() => timer.cancel());
    });
  };
  tunnel.onChange(end);
  end();
}
