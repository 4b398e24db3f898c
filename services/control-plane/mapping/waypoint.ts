/** Gateway → waypoint (docs/spec/istiod-ambient.md §1.6). Pure. */
import { tryCanonicalIp } from '../../../lib/net/address.ts';
import type { GatewayAddress, Workload } from '../../../lib/state/model.ts';
import type { Gateway, ObjectOf } from '../manifests/kinds.ts';
import { namespaceOf } from '../manifests/kinds.ts';
import type { LabelSelector } from '../../../lib/kubernetes/label-selector.ts';

/** A Gateway that has an address, so that objects can be bound to it. */
export interface Waypoint {
  /** `namespace/name`. */
  readonly key: string;
  readonly name: string;
  readonly namespace: string;
  /** Null when no address is a host name or an IP address. */
  readonly address: GatewayAddress | null;
  /** The traffic it takes: `service`, `workload`, `all` or `none`. */
  readonly traffic: string;
  /** How the node proxy reaches its pods; null as any other pod. */
  readonly inbound: Workload['applicationTunnel'];
  readonly allowedFrom: AllowedNamespaces;
}

/** The namespaces whose objects may use a waypoint. */
export interface AllowedNamespaces {
  readonly from: 'All' | 'Same' | 'Selector' | 'None';
  readonly selector: LabelSelector | null;
}

type Listener = NonNullable<Gateway['spec']['listeners']>[number];

const HBONE_PORT = 15_008;
const MAX_PORT = 65_535;
const TRAFFIC_LABEL = 'istio.io/waypoint-for';
const BINDING_ANNOTATION = 'ambient.istio.io/waypoint-inbound-binding';
const SAME_NAMESPACE: AllowedNamespaces = { from: 'Same', selector: null };

/** The waypoint of a Gateway; undefined while it has no address. The Gateway's class is not checked. */
export function waypointOf(
  gateway: Gateway,
  gatewayClass: ObjectOf<'GatewayClass'> | undefined,
  network: string,
): Waypoint | undefined {
  const addresses = gateway.status?.addresses ?? [];
  if (addresses.length === 0) return undefined;
  const namespace = namespaceOf(gateway);
  const { name, labels, annotations } = gateway.metadata;
  const inbound = inboundBinding(
    annotations?.[BINDING_ANNOTATION] ?? gatewayClass?.metadata.annotations?.[BINDING_ANNOTATION],
  );
  return {
    key: `${namespace}/${name}`,
    name,
    namespace,
    address: addressOf(addresses, namespace, network),
    traffic: labels?.[TRAFFIC_LABEL] ?? gatewayClass?.metadata.labels?.[TRAFFIC_LABEL] ?? 'service',
    inbound,
    allowedFrom: allowedNamespaces(gateway.spec.listeners ?? [], inbound),
  };
}

/** A host name comes first: an IP address may later belong to another pod. */
function addressOf(
  addresses: readonly { readonly type?: string | undefined; readonly value: string }[],
  namespace: string,
  network: string,
): GatewayAddress | null {
  const hostname = addresses.find(({ type }) => type === 'Hostname')?.value;
  if (hostname !== undefined) {
    return { destination: { kind: 'hostname', namespace, hostname }, hboneMtlsPort: HBONE_PORT };
  }
  for (const { type, value } of addresses) {
    const ip = type === undefined || type === 'IPAddress' ? tryCanonicalIp(value) : null;
    if (ip !== null) {
      return { destination: { kind: 'address', network, ip }, hboneMtlsPort: HBONE_PORT };
    }
  }
  return null;
}

/** `PROTOCOL[/port]`; null for anything else. A port that cannot be read counts as none. */
function inboundBinding(text: string | undefined): Workload['applicationTunnel'] {
  const parts = /^(NONE|PROXY)(?:\/([^/]*))?$/.exec(text ?? '');
  if (parts === null) return null;
  const port = /^\d{1,5}$/.test(parts[2] ?? '') ? Number(parts[2]) : 0;
  return {
    protocol: parts[1] === 'PROXY' ? 'PROXY' : 'NONE',
    port: port > MAX_PORT ? 0 : port,
  };
}

/** The namespaces of the listener that the binding names, else of the HBONE listener. */
function allowedNamespaces(
  listeners: readonly Listener[],
  inbound: Workload['applicationTunnel'],
): AllowedNamespaces {
  const bound = listeners.find(({ port, protocol }) => {
    if (inbound === null) return false;
    if (inbound.port !== 0) return port === inbound.port;
    return inbound.protocol === 'PROXY' && protocol === 'istio.io/PROXY';
  });
  const listener =
    bound ?? listeners.find(({ port, protocol }) => protocol === 'HBONE' && port === HBONE_PORT);
  const namespaces = listener?.allowedRoutes?.namespaces;
  if (namespaces === undefined) return SAME_NAMESPACE;
  return { from: namespaces.from ?? 'Same', selector: namespaces.selector ?? null };
}
