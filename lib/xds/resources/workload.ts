import type { istio } from '#proto/resources.js';
import { parseIp } from '../../net/address.ts';
import type { PortMap, Workload } from '../../state/model.ts';
import {
  decodeGateway,
  decodePorts,
  enumWord,
  gatewayMessage,
  ipText,
  portMessages,
  portNumber,
  refusal,
} from './fields.ts';
import type { AppProtocols } from './fields.ts';

// Enums as words: the index is the wire number; null stands for a number that is refused.
/** LEGACY_ISTIO_MTLS (2) is refused by docs/spec/control.md §3.1. */
const TUNNEL_PROTOCOLS = ['NONE', 'HBONE', null] as const;
const WORKLOAD_TYPES = ['deployment', 'cronjob', 'pod', 'job'] as const;
const WORKLOAD_STATUSES = ['HEALTHY', 'UNHEALTHY'] as const;
const NETWORK_MODES = ['STANDARD', 'HOST_NETWORK'] as const;
const APPLICATION_TUNNEL_PROTOCOLS = ['NONE', 'PROXY'] as const;

const DEFAULT_TRUST_DOMAIN = 'cluster.local';
const DEFAULT_SERVICE_ACCOUNT = 'default';
const DEFAULT_CLUSTER_ID = 'Kubernetes';
const DEFAULT_CAPACITY = 1;

type WorkloadMessage = istio.workload.Workload.$Properties;

/** Decodes a workload. Throws XDS_RESOURCE. */
export function decodeWorkload(message: WorkloadMessage): Workload {
  const uid = message.uid ?? '';
  if (uid === '') throw refusal('workload.uid', 'is required');
  return {
    uid,
    name: message.name ?? '',
    namespace: message.namespace ?? '',
    addresses: (message.addresses ?? []).map((bytes, index) =>
      ipText(`workload.addresses[${index}]`, bytes),
    ),
    hostname: message.hostname ?? '',
    network: message.network ?? '',
    tunnelProtocol: enumWord(
      'workload.tunnel_protocol',
      TUNNEL_PROTOCOLS,
      message.tunnelProtocol ?? 0,
    ),
    trustDomain: message.trustDomain || DEFAULT_TRUST_DOMAIN,
    serviceAccount: message.serviceAccount || DEFAULT_SERVICE_ACCOUNT,
    waypoint: decodeGateway('workload.waypoint', message.waypoint),
    networkGateway: decodeGateway('workload.network_gateway', message.networkGateway),
    node: message.node ?? '',
    canonicalName: message.canonicalName ?? '',
    canonicalRevision: message.canonicalRevision ?? '',
    workloadType: enumWord('workload.workload_type', WORKLOAD_TYPES, message.workloadType ?? 0),
    workloadName: message.workloadName ?? '',
    nativeTunnel: message.nativeTunnel ?? false,
    applicationTunnel: decodeApplicationTunnel(message.applicationTunnel),
    services: decodeServices(message.services),
    authorizationPolicies: [...(message.authorizationPolicies ?? [])],
    status: enumWord('workload.status', WORKLOAD_STATUSES, message.status ?? 0),
    clusterId: message.clusterId || DEFAULT_CLUSTER_ID,
    locality: {
      region: message.locality?.region ?? '',
      zone: message.locality?.zone ?? '',
      subzone: message.locality?.subzone ?? '',
    },
    networkMode: enumWord('workload.network_mode', NETWORK_MODES, message.networkMode ?? 0),
    // An absent wrapper is the default; a wrapper without a value is 0.
    capacity: message.capacity ? (message.capacity.value ?? 0) : DEFAULT_CAPACITY,
  };
}

/** The message of a workload, without default values, with maps in sorted order. */
export function workloadMessage(workload: Workload, protocols?: AppProtocols): WorkloadMessage {
  return {
    ...identityFields(workload),
    ...reachFields(workload),
    services: Object.fromEntries(
      Object.entries(workload.services)
        .toSorted(([left], [right]) => (left < right ? -1 : 1))
        .map(([key, ports]) => [key, { ports: portMessages(ports, key, protocols) }]),
    ),
    authorizationPolicies: [...workload.authorizationPolicies],
    ...number('status', WORKLOAD_STATUSES.indexOf(workload.status)),
    ...(workload.capacity === DEFAULT_CAPACITY ? {} : { capacity: { value: workload.capacity } }),
  };
}

function identityFields(workload: Workload): WorkloadMessage {
  return {
    uid: workload.uid,
    ...text('name', workload.name),
    ...text('namespace', workload.namespace),
    ...(workload.trustDomain === DEFAULT_TRUST_DOMAIN
      ? {}
      : text('trustDomain', workload.trustDomain)),
    ...text('serviceAccount', workload.serviceAccount),
    ...text('canonicalName', workload.canonicalName),
    ...text('canonicalRevision', workload.canonicalRevision),
    ...number('workloadType', WORKLOAD_TYPES.indexOf(workload.workloadType)),
    ...text('workloadName', workload.workloadName),
    ...text('clusterId', workload.clusterId),
  };
}

function reachFields(workload: Workload): WorkloadMessage {
  const { locality, applicationTunnel } = workload;
  const hasLocality = locality.region !== '' || locality.zone !== '' || locality.subzone !== '';
  return {
    addresses: workload.addresses.map((ip) => parseIp(ip).bytes),
    ...text('hostname', workload.hostname),
    ...text('network', workload.network),
    ...text('node', workload.node),
    ...number('tunnelProtocol', TUNNEL_PROTOCOLS.indexOf(workload.tunnelProtocol)),
    ...(workload.waypoint === null ? {} : { waypoint: gatewayMessage(workload.waypoint) }),
    ...(workload.networkGateway === null
      ? {}
      : { networkGateway: gatewayMessage(workload.networkGateway) }),
    ...(workload.nativeTunnel ? { nativeTunnel: true } : {}),
    ...(applicationTunnel === null
      ? {}
      : {
          applicationTunnel: {
            protocol: APPLICATION_TUNNEL_PROTOCOLS.indexOf(applicationTunnel.protocol),
            port: applicationTunnel.port,
          },
        }),
    ...(hasLocality ? { locality: { ...locality } } : {}),
    ...number('networkMode', NETWORK_MODES.indexOf(workload.networkMode)),
  };
}

function text<Name extends string>(name: Name, value: string): { [Key in Name]?: string } {
  return (value === '' ? {} : { [name]: value }) as { [Key in Name]?: string };
}

function number<Name extends string>(name: Name, value: number): { [Key in Name]?: number } {
  return (value === 0 ? {} : { [name]: value }) as { [Key in Name]?: number };
}

function decodeApplicationTunnel(
  message: istio.workload.ApplicationTunnel.$Properties | null | undefined,
): Workload['applicationTunnel'] {
  if (message === null || message === undefined) return null;
  return {
    protocol: enumWord(
      'workload.application_tunnel.protocol',
      APPLICATION_TUNNEL_PROTOCOLS,
      message.protocol ?? 0,
    ),
    port: portNumber('workload.application_tunnel.port', message.port ?? 0),
  };
}

function decodeServices(
  services: Readonly<Record<string, istio.workload.PortList.$Properties>> | null | undefined,
): Record<string, PortMap> {
  const decoded: Record<string, PortMap> = {};
  for (const [key, list] of Object.entries(services ?? {})) {
    const path = `workload.services[${JSON.stringify(key)}]`;
    if (!key.includes('/')) throw refusal(path, 'the key must be namespace/hostname');
    decoded[key] = decodePorts(`${path}.ports`, list.ports);
  }
  return decoded;
}
