import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Endpoint } from '../../lib/net/socket.ts';
import type { Need } from '../../lib/state/lookups.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { decideOutbound, withResolvedIp } from '../../lib/state/routing.ts';
import type {
  OutboundDecision,
  DoubleHboneDecision,
  HboneDecision,
  PassthroughDecision,
  TcpDecision,
} from '../../lib/state/outbound-decision.ts';
import { decided } from './lookups.ts';
import type { PodContext } from './thread-context.ts';

/** A decided way out, addresses resolved. */
export interface OutboundRoute {
  readonly kind: 'passthrough' | 'tcp' | 'hbone' | 'double-hbone';
  readonly via: 'direct' | 'waypoint' | 'gateway' | null;
  /** Why this way, in words. */
  readonly reason: string;
  readonly peer: Endpoint;
  /** `:authority` of a tunnel. */
  readonly authority: string | null;
  readonly expectedSans: readonly string[];
  /** Identities inside the tunnel to a gateway; empty without one. */
  readonly innerSans: readonly string[];
  /** The peer to connect to; for another network its gateway. */
  readonly workload: Workload | null;
  /** Uids that another attempt leaves out when this way fails: what is connected to, and the endpoint behind a gateway. */
  readonly through: readonly string[];
  readonly service: Service | null;
  /** Another endpoint, waypoint or gateway could be tried instead. */
  readonly alternatives: boolean;
}

/** The destination that the client asked for. */
export interface RouteQuery {
  readonly source: Workload;
  readonly sourceIp: string;
  readonly target: Endpoint;
  /** Uids that could not be reached just now. */
  readonly except: ReadonlySet<string>;
}

/** Decides where a connection goes, at once where everything is known. Throws or rejects with the decision's own code. */
export function findRoute(
  pod: PodContext,
  query: RouteQuery,
): OutboundRoute | Promise<OutboundRoute> {
  const { settings } = pod.thread;
  const request = {
    source: query.source,
    sourceIp: query.sourceIp,
    target: query.target,
    except: query.except,
    illegalPorts: pod.thread.ownPorts,
    network: settings.network,
    hbonePort: settings.ports.inboundHbone,
    random: Math.random,
  };
  const decision = decided(pod, (view) => decideOutbound(view, request));
  return decision instanceof Promise
    ? decision.then((known) => routeOf(pod, query, known))
    : routeOf(pod, query, decision);
}

function routeOf(
  pod: PodContext,
  query: RouteQuery,
  decision: Exclude<OutboundDecision, Need>,
): OutboundRoute | Promise<OutboundRoute> {
  switch (decision.kind) {
    case 'deny':
      throw new MeshError(decision.code, decision.reason);
    case 'passthrough':
      return plainRoute(decision);
    case 'tcp':
    case 'hbone':
    case 'double-hbone':
      if (decision.peer.resolve === null) return resolvedRoute(decision);
      pod.thread.onDemandDns.count(query.source, decision.peer.resolve.hostname);
      return pod.names
        .resolve(decision.peer.resolve)
        .then((ip) => resolvedRoute(withResolvedIp(decision, ip)));
  }
}

function resolvedRoute(final: TcpDecision | HboneDecision | DoubleHboneDecision): OutboundRoute {
  if (final.kind === 'tcp') return plainRoute(final);
  const { kind, authority, expectedSans, service, alternatives } = final;
  const isDouble = kind === 'double-hbone';
  return {
    kind,
    via: isDouble ? 'gateway' : final.via,
    reason: final.reason,
    peer: endpointOf(final),
    authority,
    expectedSans,
    innerSans: isDouble ? final.innerSans : [],
    workload: isDouble ? final.gateway : final.workload,
    through: isDouble ? [final.gateway.uid, final.workload.uid] : [final.workload.uid],
    service,
    alternatives,
  };
}

function plainRoute(decision: PassthroughDecision | TcpDecision): OutboundRoute {
  const known = decision.kind === 'tcp' ? decision : null;
  return {
    kind: decision.kind,
    via: null,
    reason: decision.reason,
    peer: endpointOf(decision),
    authority: null,
    expectedSans: [],
    innerSans: [],
    workload: known?.workload ?? null,
    through: known === null ? [] : [known.workload.uid],
    service: known?.service ?? null,
    alternatives: known?.alternatives ?? false,
  };
}

function endpointOf({ peer }: Pick<PassthroughDecision, 'peer'>): Endpoint {
  if (peer.ip === null) throw new MeshError('ROUTE_NO_UPSTREAM', 'the destination has no address');
  return { ip: peer.ip, port: peer.port };
}
