/** The decision on an outbound connection, as plain data. */
import { formatHostPort } from '../net/address.ts';
import { assert } from '../errors/assert.ts';
import type { ErrorCode } from '../errors/codes.ts';
import type { Need } from './lookups.ts';
import type { Service, Workload } from './model.ts';

/** The peer to connect to. Exactly one of `ip` and `resolve` is set. */
export interface Peer {
  readonly ip: string | null;
  readonly port: number;
  /** A name to resolve first; `pickResolved` chooses one of its addresses. See {@link withResolvedIp}. */
  readonly resolve: { readonly hostname: string; readonly preferredFamily: 4 | 6 } | null;
}

/** The destination for telemetry. */
export interface Destination {
  /** The workload that is connected to; the waypoint, when one is used. */
  readonly workload: Workload;
  /** The service the client addressed. */
  readonly service: Service | null;
  /** True when the workload runs on the source's node. */
  readonly sameNode: boolean;
  /** True when other endpoints were not tried yet. */
  readonly alternatives: boolean;
}

/** Plain TCP to the address that the client dialled; telemetry names neither workload nor service. */
export interface PassthroughDecision {
  readonly kind: 'passthrough';
  readonly peer: Peer;
  readonly reason: string;
}

/** Plain TCP to a known workload. */
export interface TcpDecision extends Destination {
  readonly kind: 'tcp';
  readonly peer: Peer;
  readonly reason: string;
}

/** One HBONE tunnel. */
export interface HboneDecision extends Destination {
  readonly kind: 'hbone';
  readonly via: 'direct' | 'waypoint';
  readonly peer: Peer;
  /** Authority of the CONNECT; null until the address is resolved. */
  readonly authority: string | null;
  /** Port of the authority. */
  readonly targetPort: number;
  /** The peer must present one of these identities. */
  readonly expectedSans: readonly string[];
  readonly reason: string;
}

/** A tunnel to a network gateway, and one inside it to the service (docs/spec/dataplane.md §2.5). */
export interface DoubleHboneDecision extends Destination {
  readonly kind: 'double-hbone';
  /** The network gateway. */
  readonly peer: Peer;
  readonly gateway: Workload;
  /** Authority of both CONNECTs: service hostname and service port. */
  readonly authority: string;
  /** The gateway must present one of these identities. */
  readonly expectedSans: readonly string[];
  /** The peer inside must present one of these identities; an empty list accepts no peer. */
  readonly innerSans: readonly string[];
  readonly reason: string;
}

/** The connection is closed. */
export interface DenyDecision {
  readonly kind: 'deny';
  readonly code: ErrorCode;
  readonly reason: string;
}

/** One of the decisions above. */
export type OutboundDecision =
  | PassthroughDecision
  | TcpDecision
  | HboneDecision
  | DoubleHboneDecision
  | DenyDecision
  | Need;

/** Completes a decision whose name is resolved: sets the peer's address, and the authority if it was missing. */
export function withResolvedIp<Decision extends TcpDecision | HboneDecision | DoubleHboneDecision>(
  decision: Decision,
  ip: string,
): Decision {
  assert(decision.peer.resolve !== null, 'the decision waits for a name to be resolved');
  const peer: Peer = { ip, port: decision.peer.port, resolve: null };
  if (decision.kind !== 'hbone' || decision.authority !== null) return { ...decision, peer };
  return { ...decision, peer, authority: formatHostPort(ip, decision.targetPort) };
}
