/** Enums of the workload API as words; the index is the wire number, null a number that is refused. */

/** TunnelProtocol; LEGACY_ISTIO_MTLS (2) is refused by docs/spec/control.md §3.1. */
export const TUNNEL_PROTOCOLS = ['NONE', 'HBONE', null] as const;
/** WorkloadType. */
export const WORKLOAD_TYPES = ['deployment', 'cronjob', 'pod', 'job'] as const;
/** WorkloadStatus. */
export const WORKLOAD_STATUSES = ['HEALTHY', 'UNHEALTHY'] as const;
/** NetworkMode. */
export const NETWORK_MODES = ['STANDARD', 'HOST_NETWORK'] as const;
/** ApplicationTunnelProtocol. */
export const APPLICATION_TUNNEL_PROTOCOLS = ['NONE', 'PROXY'] as const;
/** LoadBalancingScope; the unspecified one is refused. */
export const ROUTING_SCOPES = [
  null,
  'REGION',
  'ZONE',
  'SUBZONE',
  'NODE',
  'CLUSTER',
  'NETWORK',
] as const;
/** LoadBalancingMode. */
export const BALANCING_MODES = ['UNSPECIFIED', 'STRICT', 'FAILOVER', 'PASSTHROUGH'] as const;
/** HealthPolicy. */
export const HEALTH_POLICIES = ['ONLY_HEALTHY', 'ALLOW_ALL'] as const;
/** IPFamilies. */
export const IP_FAMILIES = ['AUTOMATIC', 'IPV4_ONLY', 'IPV6_ONLY', 'DUAL'] as const;
/** Scope of an Authorization. */
export const SCOPES = ['GLOBAL', 'NAMESPACE', 'WORKLOAD_SELECTOR'] as const;
/** Action of an Authorization. */
export const ACTIONS = ['ALLOW', 'DENY'] as const;
