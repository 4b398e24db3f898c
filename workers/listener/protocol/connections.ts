/** One connection, live or lately ended, as node-proxy reports it. Plain data. */
import type { ResponseFlag } from '../../../lib/errors/codes.ts';
import type { AccessFields } from '../../../lib/log/access-log.ts';

/** How a connection is carried; DOUBLEHBONE is a tunnel inside a tunnel, outbound only. */
export type ConnectionProtocol = 'HBONE' | 'DOUBLEHBONE' | 'TCP';

/** How the way out of a pod was chosen. */
export interface RouteRecord {
  readonly kind: 'passthrough' | 'tcp' | 'hbone' | 'double-hbone';
  readonly via: 'direct' | 'waypoint' | 'gateway' | null;
  readonly reason: string;
  /** Connect attempts so far. */
  readonly attempts: number;
}

/** The tunnel of a connection; both of its ends name it alike. */
export interface TunnelRecord {
  /** `client ip:port>server ip:port`. */
  readonly session: string;
  readonly peerIdentity: string;
  readonly openedAtMs: number;
  /** TCP and TLS of its making, milliseconds; null at the end that accepted it for `connectMs`. */
  readonly connectMs: number | null;
  readonly handshakeMs: number;
  /** True when the tunnel existed before the connection. */
  readonly reused: boolean;
}

/** The verdict of the policies on an inbound connection. */
export interface PolicyRecord {
  readonly allowed: boolean;
  /** `namespace/name` of the deciding policy, null where none decided. */
  readonly policy: string | null;
  /** Index of the deciding rule, from 0. */
  readonly rule: number | null;
  readonly reason: string;
}

/** When each step was done, milliseconds after the connection was accepted; null = not yet, or not taken. */
export interface ConnectionSteps {
  readonly understoodMs: number;
  readonly admittedMs: number | null;
  /** The upstream stands: a tunnel's stream is answered, or the TCP connection made. */
  readonly connectedMs: number | null;
  readonly firstByteMs: number | null;
}

/** How a connection ended. */
export interface ConnectionEnd {
  readonly durationMs: number;
  readonly flag: ResponseFlag;
  readonly error: string | null;
  /** The policy and rule that refused it. */
  readonly policy: string | null;
  readonly rule: number | null;
}

/** One connection, live or lately ended, as `weft get connections`, `weft trace` and the config dump show it. */
export interface ConnectionRecord {
  readonly podUid: string;
  readonly direction: 'inbound' | 'outbound';
  readonly protocol: ConnectionProtocol;
  /** `same-node`: between two pods of this process, without the tunnel it stands for. */
  readonly path?: 'same-node' | null;
  /** `ip:port`. */
  readonly source: string;
  readonly destination: string;
  /** The next hop of the bytes; for inbound HBONE `podIP:15008`. */
  readonly actualDestination: string;
  readonly destinationService: string | null;
  readonly sourceWorkload: string | null;
  readonly destinationWorkload: string | null;
  readonly sourceIdentity: string | null;
  readonly destinationIdentity: string | null;
  readonly bytesSent: number;
  readonly bytesReceived: number;
  readonly openedAtMs: number;
  /** The `Forwarded: host=` of an inbound request. */
  readonly forwardedHost: string | null;
  /** Shared with the record at the other end of the tunnel. */
  readonly traceId: string | null;
  readonly route: RouteRecord | null;
  readonly tunnel: TunnelRecord | null;
  readonly policy: PolicyRecord | null;
  readonly steps: ConnectionSteps;
  /** Null while it lives. */
  readonly end: ConnectionEnd | null;
  /** The fields of its access line, where the report asked for them; of a live one those of its opening. */
  readonly accessLine: AccessFields | null;
}
