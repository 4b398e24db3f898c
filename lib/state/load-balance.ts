/** Picks an endpoint of a service (docs/spec/dataplane.md §4 and §5). Every pick is independent. */
import { present } from '../errors/assert.ts';
import { preferencesOf, scopeValue } from './endpoint-set.ts';
import type { EndpointGroup, EndpointSet, ServiceWithEndpoints } from './endpoint-set.ts';
import type { Endpoint, LoadBalancing, RoutingScope, Service, Workload } from './model.ts';

/** Says whether a port that the service does not define is an error, or left to endpoints with an application tunnel. */
export type BalancingMode = 'standard' | 'waypoint';

/** A chosen endpoint and the port to connect to. */
export interface Pick {
  readonly workload: Workload;
  readonly port: number;
  /** True when other endpoints that were not tried yet could serve. */
  readonly alternatives: boolean;
}

/** The client of a pick, and the port. */
interface Asked {
  readonly service: Service;
  readonly source: Workload;
  readonly port: number;
  readonly mode: BalancingMode;
}

/** The candidates of a pick for one port, from one place. */
interface Plan {
  /** The nearest groups that could serve, with those without a port, without those of weight 0. */
  readonly nearest: readonly EndpointGroup[];
  /** Cumulative weights of `nearest`. */
  readonly ends: readonly number[];
  /** Groups whose endpoints can be picked and connected to. */
  readonly usable: readonly EndpointGroup[];
  /** Number of endpoints in these groups. */
  readonly usableCount: number;
}

/**
 * Picks an endpoint for a connection from `source` to `port` of the service; null when none can serve it. `random` gives
 * numbers from 0 (included) to 1 (excluded). After a failed connect, `except` names workload uids that are not picked again
 * while there are others.
 */
export function pickEndpoint(
  target: ServiceWithEndpoints,
  source: Workload,
  port: number,
  mode: BalancingMode,
  random: () => number,
  except: ReadonlySet<string> = NOBODY,
): Pick | null {
  const { service, endpoints } = target;
  if (mode === 'standard' && service.ports[port] === undefined) return null;
  const asked = { service, source, port, mode };
  const plan = endpoints.remembered(planKey(asked), () => makePlan(endpoints, asked));
  const tried = except.size === 0 ? NONE_TRIED : triedOf(endpoints, plan, except);
  const untried = plan.usableCount - tried.count;
  const endpoint =
    except.size === 0 ? draw(plan, random) : drawAgain(plan, asked, { tried, untried, random });
  if (endpoint === null) return null;
  const chosenPort = targetPort(endpoint, port, service.ports[port]);
  if (chosenPort === null) return null;
  return { workload: endpoint.workload, port: chosenPort, alternatives: untried > 1 };
}

/** Picks an item with a probability in proportion to its weight; null when all weights are 0. */
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
  // Rounding may lead past the last item.
  return last;
}

const NOBODY: ReadonlySet<string> = new Set();

/** Returns the endpoints of usable groups that are not picked again, as ascending places in their groups. */
interface Tried {
  readonly count: number;
  readonly places: ReadonlyMap<EndpointGroup, readonly number[]>;
}

const NONE_TRIED: Tried = { count: 0, places: new Map() };

/** Returns the key of a {@link Plan}: everything it depends on besides the endpoints and the balancing of the set. */
function planKey({ service, source, port, mode }: Asked): string {
  const scopes = preferencesOf(service.loadBalancing).map((scope) => scopeValue(scope, source));
  return JSON.stringify([mode, port, service.ports[port] ?? null, source.network, scopes]);
}

function makePlan(endpoints: EndpointSet, { service, source, port, mode }: Asked): Plan {
  const servicePort = service.ports[port];
  const { loadBalancing } = service;
  const eligible = [...endpoints.groups()].filter((group) => {
    const one = oneOf(group);
    return (
      isEligible(one, source, port, servicePort, mode) && isNearEnough(one, source, loadBalancing)
    );
  });
  const usable = eligible.filter((group) => {
    const one = oneOf(group);
    return one.workload.capacity > 0 && targetPort(one, port, servicePort) !== null;
  });
  const nearest = preferNearest(eligible, source, loadBalancing).filter(
    (group) => weightOf(group) > 0,
  );
  let end = 0;
  return {
    nearest,
    ends: nearest.map((group) => (end += weightOf(group))),
    usable,
    usableCount: usable.reduce((count, { members }) => count + members.length, 0),
  };
}

/** Picks for a first attempt; finds the group by binary search. */
function draw({ nearest, ends }: Plan, random: () => number): Endpoint | null {
  if (nearest.length === 0) return null;
  const at = random() * (ends.at(-1) ?? 0);
  let low = 0;
  let high = ends.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ends[middle] ?? 0) > at) high = middle;
    else low = middle + 1;
  }
  const group = present(nearest[low], 'each end has its group');
  const place = Math.floor((at - (ends[low - 1] ?? 0)) / oneOf(group).workload.capacity);
  return group.members[Math.min(place, group.members.length - 1)] ?? null;
}

/** Picks for a retry, among endpoints that can be picked; else a retry could miss the one it needs. */
function drawAgain(
  { usable }: Plan,
  { service, source }: Asked,
  from: { readonly tried: Tried; readonly untried: number; readonly random: () => number },
): Endpoint | null {
  const { places } = from.untried > 0 ? from.tried : NONE_TRIED;
  const left = (group: EndpointGroup): number =>
    group.members.length - (places.get(group)?.length ?? 0);
  const again = usable.filter((group) => left(group) > 0);
  const nearest = preferNearest(again, source, service.loadBalancing);
  const group = sample(nearest, (each) => left(each) * oneOf(each).workload.capacity, from.random);
  if (group === null) return null;
  let place = Math.floor(from.random() * left(group));
  for (const skipped of places.get(group) ?? []) if (skipped <= place) place += 1;
  return group.members[place] ?? null;
}

function triedOf(endpoints: EndpointSet, { usable }: Plan, except: ReadonlySet<string>): Tried {
  const groups = new Set(usable);
  const places = new Map<EndpointGroup, number[]>();
  let count = 0;
  for (const uid of except) {
    const place = endpoints.placeOf(uid);
    if (place === null || !groups.has(place.group)) continue;
    count += 1;
    places.set(place.group, [...(places.get(place.group) ?? []), place.index]);
  }
  for (const indexes of places.values()) indexes.sort((left, right) => left - right);
  return { count, places };
}

/** Returns the first endpoint of a group for all: they differ in nothing that counts here. */
function oneOf({ members }: EndpointGroup): Endpoint {
  return present(members[0], 'a group is never empty');
}

function weightOf(group: EndpointGroup): number {
  return group.members.length * oneOf(group).workload.capacity;
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

/** §5: returns the endpoint's own port, else the service's, else the port itself if an application tunnel takes it. */
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

/** Returns true when an endpoint may serve; STRICT takes only those that share every preference. */
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
  groups: readonly EndpointGroup[],
  source: Workload,
  balancing: LoadBalancing | null,
): readonly EndpointGroup[] {
  const preferences = preferencesOf(balancing);
  if (preferences.length === 0) return groups;
  let best = -1;
  let nearest: EndpointGroup[] = [];
  for (const group of groups) {
    const { rank, adjust } = nearness(preferences, source, oneOf(group).workload);
    const final = rank + adjust;
    if (final > best) nearest = [];
    if (final >= best) nearest.push(group);
    best = Math.max(best, final);
  }
  return nearest;
}

/** Counts the preferences in a row that an endpoint shares with the source; NETWORK in the first place outweighs the others. */
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
