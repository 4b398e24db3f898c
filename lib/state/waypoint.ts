/** Resolves references to waypoints and network gateways (docs/spec/dataplane.md §2.3). */
import { formatHostPort } from '../net/address.ts';
import { destinationIp } from './destination-ip.ts';
import type { DestinationIp } from './destination-ip.ts';
import { pickEndpoint } from './load-balance.ts';
import type { BalancingMode, Pick } from './load-balance.ts';
import { serviceByAddress, workloadOf } from './lookups.ts';
import type { Lookups } from './lookups.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { GatewayAddress, Service, Workload } from './model.ts';
import type { Answer, LookupKey } from './view.ts';
import { workloadIdentity } from '../net/spiffe.ts';

/** A resolved reference. */
export interface Gateway {
  readonly workload: Workload;
  /** The service of the reference. */
  readonly service: Service | null;
  readonly port: number;
  readonly destination: DestinationIp;
  /** Identities that the gateway may present: those of its service, and its own. */
  readonly expectedSans: readonly string[];
  /** True when its service has other endpoints that were not tried yet. */
  readonly alternatives: boolean;
}

/** Settings of {@link resolveGateway}. */
export interface GatewayQuery {
  readonly source: Workload;
  /** The address that the client dialled; the gateway's address has the same family. */
  readonly targetIp: string;
  /** Waypoints: `waypoint`; network gateways: `standard`. */
  readonly mode: BalancingMode;
  readonly random: () => number;
  readonly except: ReadonlySet<string>;
}

/** Returns the lookup key of a reference. */
export function gatewayKey({ destination }: GatewayAddress): LookupKey {
  return destination.kind === 'hostname'
    ? { kind: 'service', namespace: destination.namespace, hostname: destination.hostname }
    : { kind: 'address', network: destination.network, ip: destination.ip };
}

/** Describes a reference, for reasons. */
export function describeGateway({ destination, hboneMtlsPort }: GatewayAddress): string {
  return destination.kind === 'hostname'
    ? `${destination.namespace}/${destination.hostname}:${hboneMtlsPort}`
    : `${destination.network}/${formatHostPort(destination.ip, hboneMtlsPort)}`;
}

/** Resolves a reference. Returns `unknown` when nothing serves it, null when the view cannot tell yet. */
export function resolveGateway(
  lookups: Lookups,
  reference: GatewayAddress,
  query: GatewayQuery,
): Gateway | 'unknown' | null {
  const answer = lookups.get(gatewayKey(reference));
  if (answer === null) return null;
  const { destination, hboneMtlsPort } = reference;
  const targetIp = destination.kind === 'address' ? destination.ip : query.targetIp;
  const service = referencedService(reference, answer, query.source.namespace);
  if (service !== null) {
    const { source, mode, random, except } = query;
    const pick = pickEndpoint(service, source, hboneMtlsPort, mode, random, except);
    return pick === null ? 'unknown' : gateway(pick, service.service, targetIp);
  }
  const workload = workloadOf(answer);
  return workload === null
    ? 'unknown'
    : gateway({ workload, port: hboneMtlsPort, alternatives: false }, null, targetIp);
}

/** Returns true when the reference leads to `source`, which calls from `sourceIp`; null when the view cannot tell yet. */
export function leadsTo(
  lookups: Lookups,
  reference: GatewayAddress,
  source: Workload,
  sourceIp: string,
): boolean | null {
  const answer = lookups.get(gatewayKey(reference));
  if (answer === null) return null;
  const service = referencedService(reference, answer, source.namespace);
  const identity = workloadIdentity(source);
  if (service !== null) return service.endpoints.hasIdentity(identity, sourceIp);
  const workload = workloadOf(answer);
  if (workload === null) return false;
  return workload.addresses.includes(sourceIp) && workloadIdentity(workload) === identity;
}

/** Returns the service of a reference; null when it is not known. */
export function referencedService(
  { destination }: GatewayAddress,
  answer: Answer,
  clientNamespace: string | null,
): ServiceWithEndpoints | null {
  if (destination.kind === 'hostname') return answer.services[0] ?? null;
  return serviceByAddress(answer.services, destination.network, destination.ip, clientNamespace);
}

function gateway(
  { workload, port, alternatives }: Pick,
  service: Service | null,
  targetIp: string,
): Gateway {
  return {
    workload,
    service,
    port,
    alternatives,
    destination: destinationIp(workload, service, targetIp),
    expectedSans: expectedSans(workload, service),
  };
}

/** Returns the identities that a peer may present, reached through a service or directly. */
export function expectedSans(workload: Workload, service: Service | null): readonly string[] {
  const own = workloadIdentity(workload);
  const named = service?.subjectAltNames ?? [];
  return named.length === 0 ? [own] : [...new Set([...named, own])];
}
