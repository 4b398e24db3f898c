import { MeshError } from '../../lib/errors/mesh-error.ts';
import type { Endpoint } from '../../lib/net/socket.ts';
import type { Service, Workload } from '../../lib/state/model.ts';
import { decideOutbound, withResolvedIp } from '../../lib/state/routing.ts';
import type {
  HboneDecision,
  PassthroughDecision,
  TcpDecision,
} from '../../lib/state/outbound-decision.ts';
import { decided, ownPorts } from './lookups.ts';
import type { PodContext } from './pod-context.ts';
import { resolveName } from './resolve.ts';

/** A decided way out, addresses resolved. */
export interface OutboundRoute {
  readonly kind: 'passthrough' | 'tcp' | 'hbone';
  readonly via: 'direct' | 'waypoint' | null;
  /** Why this way, in words. */
  readonly reason: string;
  readonly peer: Endpoint;
  /** `:authority` of a tunnel. */
  readonly authority: string | null;
  readonly expectedSans: readonly string[];
  readonly workload: Workload | null;
  readonly service: Service | null;
}

/** What is asked for. */
export interface RouteQuery {
  readonly source: Workload;
  readonly sourceIp: string;
  readonly target: Endpoint;
  /** Uids that could not be reached just now. */
  readonly except: ReadonlySet<string>;
}

/** Decides where a connection goes. Rejects with the decision's own code, or ROUTE_UNSUPPORTED. */
export async function findRoute(pod: PodContext, query: RouteQuery): Promise<OutboundRoute> {
  const { settings, state } = pod.thread;
  const request = {
    ...query,
    illegalPorts: ownPorts(pod),
    network: settings.network,
    hbonePort: settings.ports.inboundHbone,
    random: Math.random,
  };
  const decision = await decided(state, (view) => decideOutbound(view, request));
  switch (decision.kind) {
    case 'deny':
      throw new MeshError(decision.code, decision.reason);
    case 'double-hbone':
      throw new MeshError(
        'ROUTE_UNSUPPORTED',
        `destinations on other networks are not supported yet (${decision.reason})`,
      );
    case 'passthrough':
      return plainRoute(decision);
    case 'tcp':
    case 'hbone':
      return resolved(decision, settings.ipv6);
  }
}

async function resolved(
  decision: TcpDecision | HboneDecision,
  ipv6: boolean,
): Promise<OutboundRoute> {
  const { resolve } = decision.peer;
  const final =
    resolve === null ? decision : withResolvedIp(decision, await resolveName(resolve, ipv6));
  if (final.kind === 'tcp') return plainRoute(final);
  return {
    kind: 'hbone',
    via: final.via,
    reason: final.reason,
    peer: endpointOf(final),
    authority: final.authority,
    expectedSans: final.expectedSans,
    workload: final.workload,
    service: final.service,
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
    workload: known?.workload ?? null,
    service: known?.service ?? null,
  };
}

function endpointOf({ peer }: PassthroughDecision | TcpDecision | HboneDecision): Endpoint {
  if (peer.ip === null) throw new MeshError('ROUTE_NO_UPSTREAM', 'the destination has no address');
  return { ip: peer.ip, port: peer.port };
}
