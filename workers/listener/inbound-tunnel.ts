/** A tunnel that arrives on 15008 (spec/dataplane.md §7.1). */
import type { Socket } from 'node:net';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { ServerTunnel } from '../../lib/hbone/engine.ts';
import { verifyClientIdentity } from '../../lib/identity/peer-verify.ts';
import { formatEndpoint } from '../../lib/net/socket.ts';
import type { Endpoint } from '../../lib/net/socket.ts';
import { ownIdentity } from './own-identity.ts';
import { serveRequest } from './inbound.ts';
import { MAX_PENDING_HANDSHAKES } from './limits.ts';
import type { PodContext } from './pod-context.ts';

/** Handshakes in progress, by pod. */
const handshakes = new WeakMap<PodContext, number>();

/** Serves the tunnel until its handshake is done or failed; its streams are served as they come. Never rejects. */
export async function serveInboundSocket(
  pod: PodContext,
  socket: Socket,
  ends: { readonly source: Endpoint; readonly local: Endpoint },
): Promise<void> {
  const pending = handshakes.get(pod) ?? 0;
  const { metrics } = pod.thread;
  if (pending >= MAX_PENDING_HANDSHAKES) {
    metrics.earlyDenials['handshake-limit'] += 1;
    socket.destroy();
    return;
  }
  handshakes.set(pod, pending + 1);
  try {
    pod.addTunnel(await handshake(pod, socket, ends));
    metrics.handshakesAccepted += 1;
  } catch (error) {
    socket.destroy();
    metrics.handshakesRefused += 1;
    const addresses = {
      source: formatEndpoint(ends.source),
      destination: formatEndpoint(ends.local),
    };
    pod.deny({ ...addresses, direction: 'inbound' }, error);
  } finally {
    handshakes.set(pod, (handshakes.get(pod) ?? 1) - 1);
  }
}

async function handshake(
  pod: PodContext,
  socket: Socket,
  ends: { readonly source: Endpoint; readonly local: Endpoint },
): Promise<ServerTunnel> {
  const { thread } = pod;
  const { workload } = await thread.state.knownLocal(pod.pod.uid);
  const identity = ownIdentity(workload, pod.pod);
  const credentials = await thread.certificates.get(identity);
  if (socket.destroyed) throw new MeshError('TLS_HANDSHAKE', 'the peer closed the connection');
  return thread.engine.serve(socket, {
    credentials,
    verifyPeer: (certificate) => verifyClientIdentity(certificate, identity),
    settings: thread.tunnelSettings,
    clock: thread.clock,
    onRequest: (request, tunnel) =>
      serveRequest(pod, { request, ...ends, identity: tunnel.peer.identity }),
    onRequestError: (error) =>
      thread.log.error({ podUid: pod.pod.uid, error: errorText(error) }, 'inbound.request-failed'),
  });
}
