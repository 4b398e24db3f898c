/** Plaintext that arrives at a pod, redirected to 15006 (docs/spec/dataplane.md §8). */
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import { spliceSockets } from '../../../lib/net/splice-sockets.ts';
import { checkPlaintextDestination, telemetryService } from '../../../lib/state/inbound.ts';
import type { CapturedSocket } from './captured-socket.ts';
import { workloadAt } from '../lookups.ts';
import { assertPassage, findPassage } from '../waypoint-check.ts';
import type { PodContext } from '../thread-context.ts';
import { connectUpstream } from '../upstream.ts';

/** Serves one connection to its end. Never rejects. */
export async function servePassthrough(pod: PodContext, captured: CapturedSocket): Promise<void> {
  const { socket, source, destination } = captured;
  try {
    await serve(pod, captured);
  } catch (error) {
    socket.reset();
    const ends = { source: formatEndpoint(source), destination: formatEndpoint(destination) };
    pod.deny({ ...ends, direction: 'inbound' }, error);
  }
}

/** Rejects only before the connection is understood. */
async function serve(pod: PodContext, captured: CapturedSocket): Promise<void> {
  const { socket, source, destination } = captured;
  const { thread } = pod;
  const startedMs = thread.clock.monotonic();
  const illegal = checkPlaintextDestination(destination, pod.thread.ownPorts);
  if (illegal !== null) throw new MeshError(illegal.code, illegal.reason);
  const local = await thread.state.knownLocal(pod.pod.uid);
  const passage = await findPassage(pod, {
    workload: local.workload,
    services: local.services,
    port: destination.port,
    forwardedHost: null,
    identity: null,
  });
  const sourceWorkload = await workloadAt(pod, source.ip);
  const connection = pod.open({
    direction: 'inbound',
    protocol: 'TCP',
    source,
    destination,
    actualDestination: destination,
    hboneAddress: null,
    sourceWorkload,
    sourceBaggage: null,
    destinationWorkload: local.workload,
    destinationService: telemetryService(local.services, local.workload, null, destination.port),
    sourceIdentity: null,
    startedMs,
  });
  connection.onCut(() => socket.reset());
  try {
    assertPassage(pod, passage);
    await pod.policy.admit(connection, {
      sourceIp: source.ip,
      sourceIdentity: null,
      destinationIp: destination.ip,
      destinationPort: destination.port,
    });
    const spoofed = pod.transparent ? source.ip : null;
    const request = { to: destination, source: spoofed, bindLoopback: null };
    const upstream = await connectUpstream(pod, request, connection);
    const copy = spliceSockets(socket, upstream, pod.bytes);
    connection.carry(copy);
    const { error } = await copy.done;
    pod.close(connection, error);
  } catch (error) {
    socket.reset();
    pod.close(connection, error);
  }
}
