import type { OpenRequest } from '../../../lib/hbone/engine.ts';
import type { ConnectAttempt } from '../../../lib/hbone/retry.ts';
import { ipFamily } from '../../../lib/net/address.ts';
import type { Copy } from '../../../lib/net/bidi-copy.ts';
import type { RawSocket } from '../../../lib/net/raw-socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { Connection } from '../telemetry/connection.ts';
import type { OutboundRoute } from '../outbound-route.ts';
import { ownIdentity } from '../tunnel/own-identity.ts';
import type { PodContext } from '../thread-context.ts';
import type { Asker } from './client.ts';
import { podName } from './messages.ts';
import { prove } from './proof.ts';

/** A connection whose route is a tunnel. */
export interface TunnelledConnection {
  readonly route: OutboundRoute;
  readonly workload: Workload;
  readonly source: Endpoint;
  readonly request: OpenRequest;
  /** Notes that the other pod's application may be reached. */
  readonly attempt: ConnectAttempt;
}

/** Joins the client to the application that was connected; once. Throws when the client cannot be taken. */
export type JoinClient = (client: RawSocket) => Copy;

/**
 * The application of a pod of this process, connected without a tunnel. Null when the route does not lead straight to such a
 * pod, or not by this way: then the tunnel is the way, and says what is wrong where something is. Rejects as the
 * tunnel would.
 */
export function askSameNode(
  pod: PodContext,
  tunnelled: TunnelledConnection,
  connection: Connection,
): Promise<JoinClient | null> | null {
  const { settings, neighbours } = pod.thread;
  const { route, workload, source } = tunnelled;
  if (!settings.sameNodeFastPath || route.via !== 'direct' || route.workload === null) return null;
  if (route.peer.port !== settings.ports.inboundHbone) return null;
  const name = podName(route.workload);
  const asker = neighbours.find(name);
  if (asker === null) return null;
  const from = tunnelSource(workload, source, route.peer);
  if (from === null) return null;
  const asked = { asker, pod: name, workloadUid: route.workload.uid, from };
  return ask(pod, tunnelled, asked, connection);
}

/** The thread to ask, the pod, and the address that the client appears under. */
interface Asked {
  readonly asker: Asker;
  readonly pod: string;
  readonly workloadUid: string;
  readonly from: Endpoint;
}

async function ask(
  pod: PodContext,
  { route, workload, request, attempt }: TunnelledConnection,
  { asker, pod: name, workloadUid, from }: Asked,
  connection: Connection,
): Promise<JoinClient | null> {
  const { metrics, proofs } = pod.thread;
  const identity = ownIdentity(workload, pod.pod);
  // A tunnel fails for the same reason and reports it.
  const credentials = await prove(pod.thread, identity, 'source').catch(() => null);
  if (credentials === null) return null;
  connection.assertNotCut();
  attempt.asked = true;
  const offer = await asker.connect(
    {
      pod: name,
      workloadUid,
      authority: request.authority,
      headers: request.headers,
      source: from,
      dialled: route.peer,
      identity,
      expectedIdentities: route.expectedSans,
    },
    (cancel) => connection.onCut(cancel),
  );
  if (offer === null) {
    attempt.asked = false;
    metrics.sameNode.declined += 1;
    return null;
  }
  if (connection.cutBy !== null) offer.drop();
  connection.assertNotCut();
  metrics.sameNode.source += 1;
  return (client) => {
    const copy = offer.join(client);
    const release = proofs.stand(credentials, 'source', (error) => copy.fail(error));
    void copy.done.then(release);
    return copy;
  };
}

/**
 * The client as a tunnel's peer would see it: under an address of its own workload, of the family dialled. A process in the pod
 * must not appear as another by sending from an address that is not the pod's.
 */
function tunnelSource(workload: Workload, source: Endpoint, peer: Endpoint): Endpoint | null {
  const family = ipFamily(peer.ip);
  if (ipFamily(source.ip) === family && workload.addresses.includes(source.ip)) return source;
  const ip = workload.addresses.find((address) => ipFamily(address) === family);
  return ip === undefined ? null : { ip, port: source.port };
}
