/** Converts the objects of a local file to the model. Pure. */
import { canonicalIp, formatIp, tryCanonicalIp } from '../../net/address.ts';
import { parsePrefix } from '../../net/prefix.ts';
import type { AddressRange, Authorization, Match } from '../../policy/model.ts';
import type { GatewayAddress, LoadBalancing, Service, Workload } from '../../state/model.ts';
import { splitFirst } from './schema.ts';
import type { LocalGateway, LocalPolicy, LocalService, LocalWorkload } from './schema.ts';

/** The workload of the model. A workload without a uid gets a stable one. */
export function toWorkload(local: LocalWorkload): Workload {
  const { workloadIps, protocol, ...same } = local;
  const addresses = workloadIps.map(canonicalIp);
  return {
    ...same,
    uid: local.uid === '' ? `local//${local.namespace}/${local.name || addresses[0]}` : local.uid,
    addresses,
    tunnelProtocol: protocol === 'HBONE' ? 'HBONE' : 'NONE',
    waypoint: local.waypoint && toGateway(local.waypoint),
    networkGateway: local.networkGateway && toGateway(local.networkGateway),
    status: local.status === 'Healthy' ? 'HEALTHY' : 'UNHEALTHY',
    networkMode: local.networkMode === 'Standard' ? 'STANDARD' : 'HOST_NETWORK',
  };
}

/** The service of the model. Throws ADDRESS_INVALID for a bad CIDR. */
export function toService(local: LocalService): Service {
  const { name, namespace, hostname, ports, subjectAltNames, canonical } = local;
  return {
    name,
    namespace,
    hostname,
    ports,
    subjectAltNames,
    canonical,
    addresses: [
      ...local.vips.map((vip) => {
        const [network, ip] = splitFirst(vip);
        return { network, ip: canonicalIp(ip), length: null };
      }),
      ...local.cidrVips.map(({ network, cidr }) => {
        const range = toRange(cidr);
        return { network, ip: range.address, length: range.length };
      }),
    ],
    waypoint: local.waypoint && toGateway(local.waypoint),
    weightedWaypoints: local.weightedWaypoints.map(({ destination, weight }) => ({
      destination: toGateway(destination),
      weight,
    })),
    loadBalancing: toLoadBalancing(local.loadBalancer),
    ipFamilies: toFamilies(local.ipFamilies),
    visibility: local.visibility === 'Public' ? 'PUBLIC' : 'NAMESPACE',
  };
}

/** The policy of the model. Throws ADDRESS_INVALID for a bad range. */
export function toAuthorization(local: LocalPolicy): Authorization {
  const scopes = {
    Global: 'GLOBAL',
    Namespace: 'NAMESPACE',
    WorkloadSelector: 'WORKLOAD_SELECTOR',
  } as const;
  return {
    name: local.name,
    namespace: local.namespace,
    scope: scopes[local.scope],
    action: local.action === 'Allow' ? 'ALLOW' : 'DENY',
    rules: local.rules.map((clauses) => ({
      clauses: clauses.map((matches) => ({ matches: matches.map(toMatch) })),
    })),
    dryRun: local.dryRun,
  };
}

function toMatch(local: LocalPolicy['rules'][number][number][number]): Match {
  return {
    namespaces: local.namespaces.map(({ match }) => match),
    notNamespaces: local.notNamespaces.map(({ match }) => match),
    serviceAccounts: local.serviceAccounts,
    notServiceAccounts: local.notServiceAccounts,
    principals: local.principals.map(({ match }) => match),
    notPrincipals: local.notPrincipals.map(({ match }) => match),
    sourceIps: local.sourceIps.map(toRange),
    notSourceIps: local.notSourceIps.map(toRange),
    destinationIps: local.destinationIps.map(toRange),
    notDestinationIps: local.notDestinationIps.map(toRange),
    destinationPorts: local.destinationPorts,
    notDestinationPorts: local.notDestinationPorts,
  };
}

function toRange(text: string): AddressRange {
  const { bytes, length } = parsePrefix(text);
  return { address: formatIp(bytes), length };
}

function toGateway(local: LocalGateway): GatewayAddress {
  const [first, rest] = splitFirst(local.destination);
  const ip = tryCanonicalIp(rest);
  return {
    destination:
      ip === null
        ? { kind: 'hostname', namespace: first, hostname: rest }
        : { kind: 'address', network: first, ip },
    hboneMtlsPort: local.hboneMtlsPort,
  };
}

function toLoadBalancing(local: LocalService['loadBalancer']): LoadBalancing | null {
  if (local === null) return null;
  const scopes = {
    Region: 'REGION',
    Zone: 'ZONE',
    Subzone: 'SUBZONE',
    Node: 'NODE',
    Cluster: 'CLUSTER',
    Network: 'NETWORK',
  } as const;
  const modes = {
    Standard: 'UNSPECIFIED',
    Strict: 'STRICT',
    Failover: 'FAILOVER',
    Passthrough: 'PASSTHROUGH',
  } as const;
  return {
    routingPreference: local.routingPreferences.map((scope) => scopes[scope]),
    mode: modes[local.mode],
    healthPolicy: local.healthPolicy === 'OnlyHealthy' ? 'ONLY_HEALTHY' : 'ALLOW_ALL',
  };
}

function toFamilies(local: LocalService['ipFamilies']): Service['ipFamilies'] {
  if (local === null) return 'AUTOMATIC';
  return ({ IPv4: 'IPV4_ONLY', IPv6: 'IPV6_ONLY', Dual: 'DUAL' } as const)[local];
}
