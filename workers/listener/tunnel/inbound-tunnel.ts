/** A tunnel that arrives on 15008 (docs/spec/dataplane.md §7.1). */
import type { Socket } from 'node:net';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { ServerTunnel } from '../../../lib/hbone/engine.ts';
import { verifyClientIdentity } from '../../../lib/identity/peer-verify.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import { ownIdentity } from './own-identity.ts';
import { overTunnel, serveRequest } from './inbound.ts';
import { firstBytes } from './first-bytes.ts';
import { HandshakeGate } from '../limits/handshake-gate.ts';
import type { PodContext } from '../thread-context.ts';
import { sessionName } from '../telemetry/tunnel-notes.ts';

/** Handshakes in progress, by pod. */
const gates = new WeakMap<PodContext, HandshakeGate>();

interface Ends {
  readonly source: Endpoint;
  readonly local: Endpoint;
}

/** Serves the tunnel until it is closed or its handshake has failed; its streams are served as they come. Never rejects. */
export async function serveInboundSocket(
  pod: PodContext,
  socket: Socket,
  ends: Ends,
): Promise<void> {
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  const tunnel = await begin(pod, socket, ends);
  // The socket may have left JavaScript long before.
  await tunnel?.closed;
  await closed;
}

/** Performs the handshake; null when it is refused or fails. */
async function begin(pod: PodContext, socket: Socket, ends: Ends): Promise<ServerTunnel | null> {
  const gate = gates.get(pod) ?? new HandshakeGate(pod.thread.budget);
  gates.set(pod, gate);
  const { metrics } = pod.thread;
  const refused = pod.bytes.full ? 'byte-limit' : gate.enter(ends.source.ip, pod.threads);
  if (refused !== null) {
    metrics.earlyDenials[refused] += 1;
    socket.destroy();
    return null;
  }
  try {
    // A silent client costs a timer and no turn.
    await firstBytes(socket, pod.thread.settings.handshakeTimeoutMs, pod.thread.clock);
    const waiting = socket.readableLength;
    pod.bytes.charge(waiting);
    const tunnel = await handshake(pod, socket, ends).finally(() => pod.bytes.charge(-waiting));
    pod.addTunnel(tunnel);
    pod.thread.peers.add(ends.source.ip, tunnel);
    metrics.handshakesAccepted += 1;
    return tunnel;
  } catch (error) {
    socket.destroy();
    metrics.handshakesRefused += 1;
    const addresses = {
      source: formatEndpoint(ends.source),
      destination: formatEndpoint(ends.local),
    };
    pod.deny({ ...addresses, direction: 'inbound' }, error);
    return null;
  } finally {
    gate.leave(ends.source.ip);
  }
}

async function handshake(pod: PodContext, socket: Socket, ends: Ends): Promise<ServerTunnel> {
  const { thread } = pod;
  // A flood at one pod leaves the other pods their turns.
  await thread.handshakeTurns.turn(pod.pod.uid);
  const { workload } = await thread.state.knownLocal(pod.pod.uid);
  const identity = ownIdentity(workload, pod.pod);
  const credentials = await thread.certificates.get(identity);
  const startedMs = thread.clock.monotonic();
  if (socket.destroyed) throw new MeshError('TLS_HANDSHAKE', 'the peer closed the connection');
  const session = sessionName(ends.source, ends.local);
  let secured = { openedAtMs: 0, handshakeMs: 0 };
  return thread.engine.serve(socket, {
    credentials,
    verifyPeer: (certificate) => {
      const handshakeMs = thread.clock.monotonic() - startedMs;
      secured = { openedAtMs: thread.clock.now(), handshakeMs };
      thread.metrics.handshakes.server.observe(handshakeMs);
      return verifyClientIdentity(certificate, identity);
    },
    settings: thread.tunnelSettings,
    clock: thread.clock,
    bytes: pod.bytes,
    onRequest: (request, tunnel) =>
      serveRequest(pod, {
        request: overTunnel(request, pod.bytes),
        source: ends.source,
        local: ends.local,
        identity: tunnel.peer.identity,
        tunnel: {
          session,
          peerIdentity: tunnel.peer.identity,
          openedAtMs: secured.openedAtMs,
          connectMs: null,
          handshakeMs: secured.handshakeMs,
          reused: tunnel.counters.opened > 1,
        },
      }),
    onRequestError: (error) =>
      thread.log.error({ podUid: pod.pod.uid, error: errorText(error) }, 'inbound.request-failed'),
  });
}
