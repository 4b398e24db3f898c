/** Finds the service or workload of an outbound target (docs/spec/dataplane.md §2.1 steps 3 and 5). */
import { pickEndpoint, sample } from './load-balance.ts';
import { serviceByAddress, workloadOf } from './lookups.ts';
import type { Lookups } from './lookups.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { GatewayAddress, Service, Workload } from './model.ts';
import { gatewayKey } from './waypoint.ts';

/** A client's target. */
export interface Target {
  /** Canonical text. */
  readonly ip: string;
  readonly port: number;
}

/** The chosen end of the connection. */
export interface Upstream {
  readonly workload: Workload;
  /** The service of the endpoint; null when the target was the workload's own address. */
  readonly service: Service | null;
  readonly port: number;
  /** True when the service has other endpoints that were not tried yet. */
  readonly alternatives: boolean;
}

/** The client, the chance, and the workloads to avoid. */
export interface Chooser {
  readonly source: Workload;
  readonly random: () => number;
  readonly except: ReadonlySet<string>;
}

/**
 * Step 3: returns the service of a target; null when the target is a workload's own address or unknown, undefined when the view
 * cannot tell yet.
 */
export function addressedService(
  lookups: Lookups,
  network: string,
  target: Target,
  namespace: string,
): ServiceWithEndpoints | null | undefined {
  const answer = lookups.get({ kind: 'address', network, ip: target.ip });
  if (answer === null) return undefined;
  if (workloadOf(answer) !== null) return null;
  return serviceByAddress(answer.services, network, target.ip, namespace);
}

/**
 * Step 5: returns the endpoint that serves a target, of a service before a workload; null when there is none, undefined when
 * the view cannot tell yet.
 */
export function chooseUpstream(
  lookups: Lookups,
  target: Target,
  chooser: Chooser,
): Upstream | null | undefined {
  const { source } = chooser;
  const answer = lookups.get({ kind: 'address', network: source.network, ip: target.ip });
  if (answer === null) return undefined;
  const service = serviceByAddress(answer.services, source.network, target.ip, source.namespace);
  if (service !== null) return chooseEndpoint(service, target.port, chooser);
  const workload = workloadOf(answer);
  return workload === null
    ? null
    : { workload, service: null, port: target.port, alternatives: false };
}

/**
 * Returns the waypoint reference of a service for one connection: a weighted one by chance, else the single one. Null when it
 * has none, undefined when the view cannot tell yet. All references are looked up at once, so that another draw needs no
 * second fetch.
 */
export function chooseWaypoint(
  lookups: Lookups,
  service: Service,
  random: () => number,
): GatewayAddress | null | undefined {
  const weighted = service.weightedWaypoints.filter(({ weight }) => weight > 0);
  const references = [
    ...weighted.map(({ destination }) => destination),
    ...(weighted.length === 0 && service.waypoint !== null ? [service.waypoint] : []),
  ];
  const answers = references.map((reference) => lookups.get(gatewayKey(reference)));
  if (answers.includes(null)) return undefined;
  const drawn = sample(weighted, ({ weight }) => weight, random);
  return drawn?.destination ?? service.waypoint;
}

function chooseEndpoint(
  service: ServiceWithEndpoints,
  port: number,
  { source, random, except }: Chooser,
): Upstream | null {
  if (service.service.loadBalancing?.mode === 'PASSTHROUGH') return null;
  const pick = pickEndpoint(service, source, port, 'standard', random, except);
  if (pick === null) return null;
  return { ...pick, service: service.service };
}
