import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { ClientTunnel } from '../../../lib/hbone/engine.ts';
import type { Handshake, TunnelKey } from '../../../lib/hbone/pool.ts';
import { verifyServerIdentity } from '../../../lib/identity/peer-verify.ts';
import { formatEndpoint, localEndpoint } from '../../../lib/net/socket.ts';
import type { PodContext } from '../thread-context.ts';
import { noteTunnel, sessionName } from '../telemetry/tunnel-notes.ts';
import { connectUpstream } from '../upstream.ts';

/**
 * Makes a tunnel for the pool: own certificate, TCP, TLS, HTTP/2. Rejects with what failed; a peer that does not
 * answer the SYN is reported as a probable network policy.
 */
export async function connectTunnel(
  pod: PodContext,
  key: TunnelKey,
  handshake: Handshake,
): Promise<ClientTunnel> {
  const { certificates, engine, clock, tunnelSettings } = pod.thread;
  const to = { ip: key.destinationIp, port: key.destinationPort };
  const credentials = await certificates.get(key.sourceIdentity);
  const request = { to, source: null, bindLoopback: null, tunnel: true };
  const startedMs = clock.monotonic();
  const raw = await connectUpstream(pod, request, null).catch((error: unknown) => {
    if (error instanceof MeshError && error.code === 'UPSTREAM_TIMEOUT') {
      throw new MeshError(
        'UPSTREAM_NETWORK_POLICY',
        `${formatEndpoint(to)} does not answer; does a NetworkPolicy block the tunnel port?`,
        { cause: error },
      );
    }
    throw error;
  });
  const socket = raw.adopt();
  const connectedMs = clock.monotonic();
  const session = sessionName(localEndpoint(socket), to);
  const secure = async (): Promise<ClientTunnel> => {
    await pod.thread.handshakeTurns.turn(pod.pod.uid);
    if (socket.destroyed) {
      throw new MeshError('UPSTREAM_CONNECT', `${formatEndpoint(to)} reset the connection at once`);
    }
    return engine.connect(socket, {
      credentials,
      verifyPeer: (certificate) => verifyServerIdentity(certificate, key.expectedIdentities),
      settings: tunnelSettings,
      clock,
      bytes: pod.bytes,
    });
  };
  const tunnel = await handshake(secure).catch((error: unknown) => {
    socket.destroy();
    throw error;
  });
  pod.thread.peers.add(to.ip, tunnel);
  const handshakeMs = clock.monotonic() - connectedMs;
  pod.thread.metrics.handshakes.client.observe(handshakeMs);
  noteTunnel(tunnel, {
    session,
    peerIdentity: tunnel.peer.identity,
    openedAtMs: clock.now(),
    connectMs: connectedMs - startedMs,
    handshakeMs,
  });
  return tunnel;
}
