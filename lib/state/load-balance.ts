/** Choice of an endpoint of a service (docs/spec/dataplane.md §4 and §5). Every pick is independent. */
import type {
  Endpoint,
  LoadBalancing,
  RoutingScope,
  ServiceWithEndpoints,
  Workload,
} from './model.ts';

/** How ports a service does not define are treated: an error, or left to endpoints with an application tunnel. */
export type BalancingMode = 'standard' | 'waypoint';

/** A chosen endpoint and the port to connect to. */
export interface Pick {
  readonly workload: Workload;
  readonly port: number;
  /** Others could serve as well that were not tried yet. */
  readonly alternatives: boolean;
}

/**
 * Picks an endpoint for a connection from `source` to `port` of the service, null when none can serve it.
 * `random` gives numbers from 0 (included) to 1 (excluded). `except` are workload uids not to be picked
 * again while there are others, for a retry after a failed connect (docs/decisions/connect-retry.md).
 */
export function pickEndpoint(
  target: ServiceWithEndpoints,
  source: Workload,
  port: number,
  mode: BalancingMode,
  random: () => number,
  except: ReadonlySet<string> = new Set(),
): Pick | null {
  const { service } = target;
  const servicePort = service.ports[port];
  if (mode === 'standard' && servicePort === undefined) return null;
  const eligible = target.endpoints.filter(
    (endpoint) =>
      isEligible(endpoint, source, port, servicePort, mode) &&
      isNearEnough(endpoint, source, service.loadBalancing),
  );
  const usable = eligible.filter(
    (endpoint) =>
      endpoint.workload.capacity > 0 && targetPort(endpoint, port, servicePort) !== null,
  );
  // Of what can be picked only: else a retry would leave out what it needs.
  const untried = usable.filter(({ workload }) => !except.has(workload.uid));
  const again = untried.length > 0 ? untried : usable;
  const nearest = preferNearest(
    except.size === 0 ? eligible : again,
    source,
    service.loadBalancing,
  );
  const endpoint = sample(nearest, ({ workload }) => workload.capacity, random);
  if (endpoint === null) return null;
  const chosenPort = targetPort(endpoint, port, servicePort);
  if (chosenPort === null) return null;
  return { workload: endpoint.workload, port: chosenPort, alternatives: untried.length > 1 };
}

/** Picks an item with a probability of its weight by all weights; null when they are all 0. */
export function sample<Item>(
  items: readonly Item[],
  weightOf: (item: Item) => number,
  random: () => number,
): Item | null {
  let left = random() * items.reduce((total, item) => total + weightOf(item), 0);
  let last: Item | null = null;
  for (const item of items) {
    const weight = weightOf(item);
    if (weight <= 0) continue;
    last = item;
    left -= weight;
    if (left < 0) return item;
  }
  // Rounding may leave nothing to subtract from.
  return last;
}

function isEligible(
  endpoint: Endpoint,
  source: Workload,
  port: number,
  servicePort: number | undefined,
  mode: BalancingMode,
): boolean {
  const { workload, ports } = endpoint;
  if (workload.addresses.length === 0 && workload.hostname === '') {
    if (workload.network === source.network || workload.networkGateway === null) return false;
  }
  if (mode === 'standard') return servicePort !== 0 || ports[port] !== undefined;
  return servicePort !== undefined || workload.applicationTunnel !== null;
}

/** §5: the endpoint's own port, else the service's, else the port itself where an application tunnel takes it. */
function targetPort(
  endpoint: Endpoint,
  port: number,
  servicePort: number | undefined,
): number | null {
  const own = endpoint.ports[port] ?? 0;
  if (own > 0) return own;
  if (servicePort !== undefined && servicePort > 0) return servicePort;
  return (endpoint.workload.applicationTunnel?.port ?? 0) > 0 ? port : null;
}

/** STRICT takes only what shares every preference. */
function isNearEnough(
  { workload }: Endpoint,
  source: Workload,
  balancing: LoadBalancing | null,
): boolean {
  if (balancing === null || balancing.mode !== 'STRICT') return true;
  const { routingPreference } = balancing;
  return nearness(routingPreference, source, workload).rank === routingPreference.length;
}

function preferNearest(
  endpoints: readonly Endpoint[],
  source: Workload,
  balancing: LoadBalancing | null,
): readonly Endpoint[] {
  if (balancing === null) return endpoints;
  const { mode, routingPreference } = balancing;
  if (mode !== 'STRICT' && mode !== 'FAILOVER') return endpoints;
  let best = -1;
  let nearest: Endpoint[] = [];
  for (const endpoint of endpoints) {
    const { rank, adjust } = nearness(routingPreference, source, endpoint.workload);
    const final = rank + adjust;
    if (final > best) nearest = [];
    if (final >= best) nearest.push(endpoint);
    best = Math.max(best, final);
  }
  return nearest;
}

/** How many preferences in a row an endpoint shares with the source; a first NETWORK one outweighs the others. */
function nearness(
  preferences: readonly RoutingScope[],
  source: Workload,
  endpoint: Workload,
): { rank: number; adjust: number } {
  const networkFirst = preferences[0] === 'NETWORK';
  let rank = 0;
  let adjust = 0;
  for (const scope of preferences) {
    const matches = scopeValue(scope, source) === scopeValue(scope, endpoint);
    if (matches) {
      rank += 1;
      if (networkFirst && scope === 'NETWORK') adjust = preferences.length - 1;
    } else if (!(networkFirst && scope === 'NETWORK')) {
      break;
    }
  }
  return { rank, adjust };
}

function scopeValue(scope: RoutingScope, workload: Workload): string {
  switch (scope) {
    case 'REGION':
      return workload.locality.region;
    case 'ZONE':
      return workload.locality.zone;
    case 'SUBZONE':
      return workload.locality.subzone;
    case 'NODE':
      return workload.node;
    case 'CLUSTER':
      return workload.clusterId;
    case 'NETWORK':
      return workload.network;
  }
}
