/** The facts of a connection, and how metrics and access lines show them (docs/spec/observability.md §2.1, §3.1). */
import type { TraceContext } from '../../../lib/hbone/connect-request.ts';
import type { AccessFacts, AccessParty } from '../../../lib/log/access-log.ts';
import type { DescribedWorkload, TrafficFacts } from '../../../lib/metrics/traffic-labels.ts';
import { formatEndpoint } from '../../../lib/net/socket.ts';
import type { Endpoint } from '../../../lib/net/socket.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';
import { workloadIdentity } from '../../../lib/net/spiffe.ts';
import type { ConnectionProtocol, RouteRecord } from '../protocol/connections.ts';

/** The facts of a connection once it is understood. */
export interface ConnectionFacts {
  readonly direction: 'inbound' | 'outbound';
  /** DOUBLEHBONE counts as opened only when its bytes flow or it failed: its destination is learned on the way. */
  readonly protocol: ConnectionProtocol;
  readonly source: Endpoint;
  /** The destination that the client asked for. */
  readonly destination: Endpoint;
  /** The next hop; of an inbound tunnel its own address. */
  readonly actualDestination: Endpoint;
  readonly hboneAddress: string | null;
  readonly sourceWorkload: Workload | null;
  readonly sourceBaggage: DescribedWorkload | null;
  /** The waypoint or gateway, where one is used. */
  readonly destinationWorkload: Workload | null;
  /** The workload that the far end of a double tunnel named; replaces the gateway. */
  readonly destinationBaggage?: DescribedWorkload | null;
  /** The proven identity of the destination, where it is not the destination workload's own. */
  readonly destinationIdentity?: string | null;
  readonly destinationService: Service | null;
  /** Proven by TLS: the peer of an inbound tunnel, ourselves on an outbound one. */
  readonly sourceIdentity: string | null;
  /** Ties the two ends together: made for an outbound connection, taken over from a tunnel's request. */
  readonly trace?: TraceContext | null;
  /** Monotonic milliseconds at which it was accepted; when it is understood, where left out. */
  readonly startedMs?: number;
  /** How the way out was chosen. */
  readonly route?: RouteRecord | null;
  /** The `Forwarded: host=` of an inbound request. */
  readonly forwardedHost?: string | null;
  /** `same-node`: between two pods of this process, without the tunnel it stands for. */
  readonly path?: 'same-node' | null;
}

/** The label values of a connection. */
export function trafficFacts(facts: ConnectionFacts): TrafficFacts {
  return {
    reporter: facts.direction === 'outbound' ? 'source' : 'destination',
    sourceWorkload: facts.sourceWorkload,
    sourceBaggage: facts.sourceBaggage,
    sourceIdentity: facts.sourceIdentity,
    destinationWorkload: facts.destinationWorkload,
    destinationBaggage: facts.destinationBaggage ?? null,
    destinationIdentity: facts.destinationIdentity ?? null,
    destinationService: facts.destinationService,
    mutualTls: facts.protocol !== 'TCP',
  };
}

/** The identity the destination is known by, null without mutual TLS. */
export function destinationIdentity(facts: ConnectionFacts): string | null {
  if (facts.protocol === 'TCP') return null;
  if (facts.destinationIdentity !== undefined && facts.destinationIdentity !== null) {
    return facts.destinationIdentity;
  }
  return facts.destinationWorkload === null ? null : workloadIdentity(facts.destinationWorkload);
}

/** The fields of an access line. */
export function accessFacts(facts: ConnectionFacts): AccessFacts {
  const tls = facts.protocol !== 'TCP';
  const derived = facts.destinationBaggage ?? null;
  return {
    source: party(
      facts.source,
      facts.sourceWorkload,
      facts.sourceBaggage,
      tls ? facts.sourceIdentity : null,
    ),
    destination: party(
      facts.actualDestination,
      derived === null ? facts.destinationWorkload : null,
      derived,
      destinationIdentity(facts),
    ),
    hboneAddress: facts.hboneAddress,
    serviceHostname: facts.destinationService?.hostname ?? null,
    direction: facts.direction,
    traceId: facts.trace?.traceId ?? null,
    path: facts.path ?? null,
  };
}

function party(
  endpoint: Endpoint,
  workload: Workload | null,
  baggage: DescribedWorkload | null,
  identity: string | null,
): AccessParty {
  return {
    address: formatEndpoint(endpoint),
    workload: workload?.name ?? baggage?.canonicalName ?? null,
    namespace: workload?.namespace ?? baggage?.namespace ?? null,
    identity,
    cluster: workload?.clusterId ?? baggage?.clusterId ?? null,
  };
}
