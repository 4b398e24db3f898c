/** A connection from a pod of this process, instead of a stream of an inbound tunnel. */
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { parseSpiffe } from '../../../lib/net/spiffe.ts';
import { serveRequest } from '../tunnel/inbound.ts';
import { ownIdentity } from '../tunnel/own-identity.ts';
import type { PodContext } from '../thread-context.ts';
import type { Arrival } from './server.ts';
import { prove } from './proof.ts';
import type { TunnelCredentials } from '../../../lib/hbone/credentials.ts';
import type { SameNodeRequest } from './messages.ts';

/**
 * Serves it as a tunnel's request is served (docs/spec/dataplane.md §7.2). Both names are checked as the two ends of a handshake
 * would: each thread holds a valid certificate for its own pod, so the names are proven. What cannot be said for certain
 * is left to the tunnel.
 */
export async function serveArrival(
  pod: PodContext,
  arrival: Arrival,
  request: SameNodeRequest,
): Promise<void> {
  const workload = pod.thread.state.local(pod.pod.uid)?.workload ?? null;
  if (workload?.uid !== request.workloadUid) {
    arrival.decline('the pod is another workload here');
    return;
  }
  if (!workload.addresses.includes(request.dialled.ip)) {
    arrival.decline('the pod has another address here');
    return;
  }
  const identity = ownIdentity(workload, pod.pod);
  let credentials: TunnelCredentials;
  try {
    credentials = await prove(pod.thread, identity, 'destination');
  } catch (error) {
    arrival.decline(errorText(error));
    return;
  }
  try {
    assertPeers(request, identity);
  } catch (error) {
    arrival.fail(asMeshError(error, 'TLS_PEER_IDENTITY'));
    return;
  }
  pod.thread.metrics.sameNode.destination += 1;
  const revoke = (error: MeshError): void => arrival.revoke(error);
  void arrival.over.then(pod.thread.proofs.stand(credentials, 'destination', revoke));
  const { source, dialled } = request;
  await serveRequest(pod, {
    request: arrival,
    source,
    local: dialled,
    identity: request.identity,
    path: 'same-node',
  });
}

/** The client's rule for the server and the server's for the client (docs/spec/hbone.md §3). */
function assertPeers(request: SameNodeRequest, own: string): void {
  const { expectedIdentities, identity } = request;
  if (!expectedIdentities.includes(own)) {
    const expected = expectedIdentities.slice(0, 8).join(', ') || 'no identity';
    throw new MeshError(
      'TLS_PEER_IDENTITY',
      `the server has none of the expected identities: its certificate names ${own}, expected ${expected}`,
      { detail: { found: own, expected: expectedIdentities.join(',') } },
    );
  }
  const { trustDomain } = parseSpiffe(own);
  if (parseSpiffe(identity).trustDomain === trustDomain) return;
  throw new MeshError(
    'TLS_PEER_IDENTITY',
    `the client is not of the trust domain ${trustDomain}: its certificate names ${identity}`,
    { detail: { trustDomain, found: identity } },
  );
}
