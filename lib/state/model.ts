/**
 * The mesh of the data plane: workloads and services in plain, clonable form. Follows docs/spec/control.md §3.1; the decoder
 * applies defaults.
 */

/** The protocol that reaches a workload. */
export type TunnelProtocol = 'NONE' | 'HBONE';

/** A reference to a waypoint or network gateway (docs/spec/control.md §3.1 GatewayAddress). */
export interface GatewayAddress {
  readonly destination:
    | { readonly kind: 'hostname'; readonly namespace: string; readonly hostname: string }
    | { readonly kind: 'address'; readonly network: string; readonly ip: string };
  readonly hboneMtlsPort: number;
}

/** Service port → target port of one endpoint. */
export type PortMap = Readonly<Record<number, number>>;

/** A source or destination of traffic: a pod, or an external endpoint. */
export interface Workload {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  /** Canonical text form: IPv4 dotted, IPv6 compressed lower-case; never IPv4-mapped. */
  readonly addresses: readonly string[];
  readonly hostname: string;
  readonly network: string;
  readonly tunnelProtocol: TunnelProtocol;
  readonly trustDomain: string;
  readonly serviceAccount: string;
  readonly waypoint: GatewayAddress | null;
  readonly networkGateway: GatewayAddress | null;
  readonly node: string;
  readonly canonicalName: string;
  readonly canonicalRevision: string;
  readonly workloadType: 'deployment' | 'cronjob' | 'pod' | 'job';
  readonly workloadName: string;
  readonly nativeTunnel: boolean;
  readonly applicationTunnel: { readonly protocol: 'NONE' | 'PROXY'; readonly port: number } | null;
  /** `namespace/hostname` → ports. */
  readonly services: Readonly<Record<string, PortMap>>;
  /** Policy keys `namespace/name` that select this workload. */
  readonly authorizationPolicies: readonly string[];
  readonly status: 'HEALTHY' | 'UNHEALTHY';
  readonly clusterId: string;
  readonly locality: { readonly region: string; readonly zone: string; readonly subzone: string };
  readonly networkMode: 'STANDARD' | 'HOST_NETWORK';
  readonly capacity: number;
}

/** An address on a network; `length` only for CIDR VIPs. */
export interface NetworkAddress {
  readonly network: string;
  readonly ip: string;
  readonly length: number | null;
}

/** One level of locality-aware load balancing. */
export type RoutingScope = 'REGION' | 'ZONE' | 'SUBZONE' | 'NODE' | 'CLUSTER' | 'NETWORK';

/** The load balancing of a service (docs/spec/dataplane.md §4). */
export interface LoadBalancing {
  readonly routingPreference: readonly RoutingScope[];
  readonly mode: 'UNSPECIFIED' | 'STRICT' | 'FAILOVER' | 'PASSTHROUGH';
  readonly healthPolicy: 'ONLY_HEALTHY' | 'ALLOW_ALL';
}

/** A name with virtual addresses and endpoints. */
export interface Service {
  readonly name: string;
  readonly namespace: string;
  readonly hostname: string;
  readonly addresses: readonly NetworkAddress[];
  /** Service port → target port; 0 when each endpoint names its own. */
  readonly ports: PortMap;
  readonly subjectAltNames: readonly string[];
  readonly waypoint: GatewayAddress | null;
  readonly weightedWaypoints: readonly {
    readonly destination: GatewayAddress;
    readonly weight: number;
  }[];
  readonly loadBalancing: LoadBalancing | null;
  readonly ipFamilies: 'AUTOMATIC' | 'IPV4_ONLY' | 'IPV6_ONLY' | 'DUAL';
  readonly canonical: boolean;
  readonly visibility: 'PUBLIC' | 'NAMESPACE';
}

/** A workload that serves a service, already filtered by health (docs/spec/control.md §3.3). */
export interface Endpoint {
  readonly workload: Workload;
  readonly ports: PortMap;
}

/** Returns the key of a service: `namespace/hostname`. */
export function serviceKey(service: {
  readonly namespace: string;
  readonly hostname: string;
}): string {
  return `${service.namespace}/${service.hostname}`;
}
