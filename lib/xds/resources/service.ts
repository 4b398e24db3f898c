import type { istio } from '#proto/resources.js';
import { canonicalIpOf, formatIp, parseIp } from '../../net/address.ts';
import type { LoadBalancing, NetworkAddress, Service } from '../../state/model.ts';
import { serviceKey } from '../../state/model.ts';
import {
  decodeGateway,
  decodePorts,
  enumWord,
  gatewayMessage,
  ipText,
  portMessages,
  refusal,
} from './fields.ts';
import type { AppProtocols } from './fields.ts';

type ServiceMessage = istio.workload.Service.$Properties;

// Enums as words: the index is the wire number; null stands for a number that is refused.
const ROUTING_SCOPES = [null, 'REGION', 'ZONE', 'SUBZONE', 'NODE', 'CLUSTER', 'NETWORK'] as const;
const BALANCING_MODES = ['UNSPECIFIED', 'STRICT', 'FAILOVER', 'PASSTHROUGH'] as const;
const HEALTH_POLICIES = ['ONLY_HEALTHY', 'ALLOW_ALL'] as const;
const IP_FAMILIES = ['AUTOMATIC', 'IPV4_ONLY', 'IPV6_ONLY', 'DUAL'] as const;

const VISIBILITY_NAMESPACE = 1;
/** An IPv4-mapped range carries the bits of `::ffff:0:0/96` in front of its IPv4 bits. */
const MAPPED_BITS = 96;

/** Decodes a service. Throws XDS_RESOURCE. */
export function decodeService(message: ServiceMessage): Service {
  const hostname = message.hostname ?? '';
  if (hostname === '') throw refusal('service.hostname', 'is required');
  const visibility: number = message.visibility ?? 0;
  return {
    name: message.name ?? '',
    namespace: message.namespace ?? '',
    hostname,
    addresses: (message.addresses ?? []).map((address, index) =>
      decodeNetworkAddress(`service.addresses[${index}]`, address),
    ),
    ports: decodePorts('service.ports', message.ports),
    subjectAltNames: [...(message.subjectAltNames ?? [])],
    waypoint: decodeGateway('service.waypoint', message.waypoint),
    weightedWaypoints: (message.weightedWaypoints ?? []).map((weighted, index) =>
      decodeWeighted(`service.weighted_waypoints[${index}]`, weighted),
    ),
    loadBalancing: decodeLoadBalancing(message.loadBalancing),
    ipFamilies: enumWord('service.ip_families', IP_FAMILIES, message.ipFamilies ?? 0),
    canonical: message.canonical ?? false,
    // Unknown values are public by docs/spec/control.md §3.1.
    visibility: visibility === VISIBILITY_NAMESPACE ? 'NAMESPACE' : 'PUBLIC',
  };
}

/** The message of a service, without default values, with ports in ascending order. */
export function serviceMessage(service: Service, protocols?: AppProtocols): ServiceMessage {
  const ipFamilies = IP_FAMILIES.indexOf(service.ipFamilies);
  return {
    ...(service.name === '' ? {} : { name: service.name }),
    ...(service.namespace === '' ? {} : { namespace: service.namespace }),
    hostname: service.hostname,
    addresses: service.addresses.map(networkAddressMessage),
    ports: portMessages(service.ports, serviceKey(service), protocols),
    subjectAltNames: [...service.subjectAltNames],
    ...(service.waypoint === null ? {} : { waypoint: gatewayMessage(service.waypoint) }),
    weightedWaypoints: service.weightedWaypoints.map(({ destination, weight }) => ({
      destination: gatewayMessage(destination),
      weight,
    })),
    ...(service.loadBalancing === null
      ? {}
      : { loadBalancing: balancingMessage(service.loadBalancing) }),
    ...(ipFamilies === 0 ? {} : { ipFamilies }),
    ...(service.canonical ? { canonical: true } : {}),
    ...(service.visibility === 'PUBLIC' ? {} : { visibility: VISIBILITY_NAMESPACE }),
  };
}

function decodeNetworkAddress(
  path: string,
  message: istio.workload.NetworkAddress.$Properties,
): NetworkAddress {
  const bytes = message.address ?? new Uint8Array();
  const ip = ipText(`${path}.address`, bytes);
  const network = message.network ?? '';
  if (message.length === null || message.length === undefined) return { network, ip, length: null };
  const bits = bytes.length * 8;
  if (message.length > bits) {
    throw refusal(`${path}.length`, `${message.length} is above ${bits}`);
  }
  const isMapped = canonicalIpOf(bytes) !== formatIp(bytes);
  if (!isMapped) return { network, ip, length: message.length };
  if (message.length < MAPPED_BITS) {
    throw refusal(`${path}.length`, `${message.length} reaches beyond IPv4-mapped addresses`);
  }
  return { network, ip, length: message.length - MAPPED_BITS };
}

function networkAddressMessage(address: NetworkAddress): istio.workload.NetworkAddress.$Properties {
  return {
    ...(address.network === '' ? {} : { network: address.network }),
    address: parseIp(address.ip).bytes,
    ...(address.length === null ? {} : { length: address.length }),
  };
}

function decodeWeighted(
  path: string,
  message: istio.workload.WeightedWaypoint.$Properties,
): Service['weightedWaypoints'][number] {
  const destination = decodeGateway(`${path}.destination`, message.destination);
  if (destination === null) throw refusal(`${path}.destination`, 'is required');
  return { destination, weight: message.weight ?? 0 };
}

function decodeLoadBalancing(
  message: istio.workload.LoadBalancing.$Properties | null | undefined,
): LoadBalancing | null {
  if (message === null || message === undefined) return null;
  const path = 'service.load_balancing';
  return {
    routingPreference: (message.routingPreference ?? []).map((scope, index) =>
      enumWord(`${path}.routing_preference[${index}]`, ROUTING_SCOPES, scope),
    ),
    mode: enumWord(`${path}.mode`, BALANCING_MODES, message.mode ?? 0),
    healthPolicy: enumWord(`${path}.health_policy`, HEALTH_POLICIES, message.healthPolicy ?? 0),
  };
}

function balancingMessage(balancing: LoadBalancing): istio.workload.LoadBalancing.$Properties {
  const mode = BALANCING_MODES.indexOf(balancing.mode);
  const healthPolicy = HEALTH_POLICIES.indexOf(balancing.healthPolicy);
  return {
    routingPreference: balancing.routingPreference.map((scope) => ROUTING_SCOPES.indexOf(scope)),
    ...(mode === 0 ? {} : { mode }),
    ...(healthPolicy === 0 ? {} : { healthPolicy }),
  };
}
