/**
 * The one table of expected failures. A code is stable: scripts, logs and metrics may rely on it.
 *
 * `flag` is the `response_flags` value reported for a connection that ends with the error
 * (docs/spec/observability.md §2.1), `retry` the advice to a caller, `http` the status an inbound HBONE
 * stream is refused with (docs/spec/dataplane.md §7.2), or null where no status applies.
 */
export interface ErrorPolicy {
  readonly flag: ResponseFlag;
  readonly retry: 'never' | 'backoff' | 'now';
  readonly http: 400 | 401 | 503 | null;
}

/** Values of the `response_flags` label. */
export type ResponseFlag =
  | '-'
  | 'DENY'
  | 'CONNECT'
  | 'TLS_FAILURE'
  | 'H2_HANDSHAKE_FAILURE'
  | 'NETWORK_POLICY'
  | 'IDENTITY_ERROR'
  | 'CERT_REVOKED';

export const errorTable = {
  CONFIG_INVALID: { flag: '-', retry: 'never', http: null },
  CONFIG_UNSUPPORTED: { flag: '-', retry: 'never', http: null },
  ADDRESS_INVALID: { flag: 'CONNECT', retry: 'never', http: 400 },
  MANIFEST_INVALID: { flag: '-', retry: 'never', http: null },
  IDENTITY_INVALID: { flag: 'IDENTITY_ERROR', retry: 'never', http: null },
  IDENTITY_UNAVAILABLE: { flag: 'IDENTITY_ERROR', retry: 'backoff', http: null },
  IDENTITY_REFUSED: { flag: 'IDENTITY_ERROR', retry: 'backoff', http: null },
  IDENTITY_EXPIRED: { flag: 'IDENTITY_ERROR', retry: 'backoff', http: null },
  IDENTITY_TOKEN: { flag: 'IDENTITY_ERROR', retry: 'never', http: 401 },
  POLICY_DENIED: { flag: 'DENY', retry: 'never', http: 401 },
  POLICY_INVALID: { flag: 'DENY', retry: 'never', http: null },
  ROUTE_UNKNOWN_WORKLOAD: { flag: 'CONNECT', retry: 'backoff', http: 503 },
  ROUTE_NO_UPSTREAM: { flag: 'CONNECT', retry: 'backoff', http: 503 },
  ROUTE_WAYPOINT_BYPASSED: { flag: 'DENY', retry: 'never', http: 401 },
  ROUTE_ILLEGAL: { flag: 'CONNECT', retry: 'never', http: 400 },
  ROUTE_MISMATCH: { flag: 'CONNECT', retry: 'never', http: 400 },
  UPSTREAM_CONNECT: { flag: 'CONNECT', retry: 'backoff', http: 503 },
  UPSTREAM_TIMEOUT: { flag: 'CONNECT', retry: 'backoff', http: 503 },
  UPSTREAM_NETWORK_POLICY: { flag: 'NETWORK_POLICY', retry: 'backoff', http: null },
  TLS_HANDSHAKE: { flag: 'TLS_FAILURE', retry: 'backoff', http: null },
  TLS_PEER_IDENTITY: { flag: 'TLS_FAILURE', retry: 'never', http: null },
  TLS_PEER_REVOKED: { flag: 'CERT_REVOKED', retry: 'never', http: null },
  TLS_PEER_DISTRUSTED: { flag: 'TLS_FAILURE', retry: 'never', http: null },
  TUNNEL_PROTOCOL: { flag: 'H2_HANDSHAKE_FAILURE', retry: 'never', http: 400 },
  TUNNEL_REFUSED: { flag: 'CONNECT', retry: 'never', http: null },
  TUNNEL_RESET: { flag: 'CONNECT', retry: 'never', http: null },
  TUNNEL_CLOSED: { flag: 'H2_HANDSHAKE_FAILURE', retry: 'now', http: null },
  STATE_CONFLICT: { flag: '-', retry: 'backoff', http: null },
  STATE_INVALID: { flag: '-', retry: 'never', http: null },
  STATE_UNAVAILABLE: { flag: '-', retry: 'backoff', http: null },
  KUBERNETES_UNAVAILABLE: { flag: '-', retry: 'backoff', http: null },
  KUBERNETES_REFUSED: { flag: '-', retry: 'backoff', http: null },
  KUBERNETES_NOT_FOUND: { flag: '-', retry: 'never', http: null },
  KUBERNETES_CONFLICT: { flag: '-', retry: 'now', http: null },
  KUBERNETES_EXPIRED: { flag: '-', retry: 'now', http: null },
  KUBERNETES_INVALID: { flag: '-', retry: 'never', http: null },
  BUS_UNAVAILABLE: { flag: '-', retry: 'backoff', http: null },
  BUS_MESSAGE: { flag: '-', retry: 'never', http: null },
  BUS_TIMEOUT: { flag: '-', retry: 'backoff', http: null },
  XDS_RESOURCE: { flag: '-', retry: 'never', http: null },
  XDS_STREAM: { flag: '-', retry: 'backoff', http: null },
  ZDS_PROTOCOL: { flag: '-', retry: 'never', http: null },
  ZDS_TIMEOUT: { flag: '-', retry: 'backoff', http: null },
  ZDS_REFUSED: { flag: '-', retry: 'backoff', http: null },
  ZDS_NO_PROXY: { flag: '-', retry: 'backoff', http: null },
  NETNS_UNAVAILABLE: { flag: '-', retry: 'backoff', http: null },
  NETNS_RULES: { flag: '-', retry: 'backoff', http: null },
  NATIVE_SYSCALL: { flag: 'CONNECT', retry: 'backoff', http: 503 },
  ACTOR_FAILED: { flag: '-', retry: 'backoff', http: null },
  ACTOR_DEADLINE: { flag: '-', retry: 'never', http: null },
} as const satisfies Record<string, ErrorPolicy>;

/** A code of {@link errorTable}. */
export type ErrorCode = keyof typeof errorTable;
