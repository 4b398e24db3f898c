/** The endpoints of a service, kept so that neither a pick nor a change looks at all of them. */
import { present } from '../errors/assert.ts';
import { REMEMBERED_PLANS_MAX } from './limits.ts';
import type { Endpoint, LoadBalancing, RoutingScope, Service, Workload } from './model.ts';
import { workloadIdentity } from '../net/spiffe.ts';

/** A service with the endpoints it has now. */
export interface ServiceWithEndpoints {
  readonly service: Service;
  readonly endpoints: EndpointSet;
}

/** Endpoints between which a pick makes no difference but chance; never empty. Valid until the set changes. */
export interface EndpointGroup {
  readonly members: readonly Endpoint[];
}

/** Where an endpoint is. */
export interface EndpointPlace {
  readonly group: EndpointGroup;
  readonly index: number;
}

interface Group extends EndpointGroup {
  readonly key: string;
  readonly members: Endpoint[];
}

interface Place {
  readonly endpoint: Endpoint;
  readonly group: Group;
  index: number;
}

/**
 * Endpoints by uid, grouped by all that balancing looks at: a service has few groups, however many endpoints. A change
 * touches the endpoint it concerns. Iterates over the endpoints in the order they came in.
 */
export class EndpointSet implements Iterable<Endpoint> {
  readonly #scopes: readonly RoutingScope[];
  readonly #places = new Map<string, Place>();
  readonly #groups = new Map<string, Group>();
  /** How many endpoints have an identity, and an identity at an address. */
  readonly #identities = new Map<string, number>();
  readonly #plans = new Map<string, unknown>();

  /** `balancing` is that of the service, and stays what it is as long as the set lives. */
  constructor(balancing: LoadBalancing | null, endpoints: Iterable<Endpoint> = []) {
    this.#scopes = preferencesOf(balancing);
    for (const endpoint of endpoints) this.put(endpoint);
  }

  /** Number of endpoints. */
  get size(): number {
    return this.#places.size;
  }

  /** Number of groups. */
  get groupCount(): number {
    return this.#groups.size;
  }

  /** All groups, in the order in which their first endpoint came. */
  groups(): Iterable<EndpointGroup> {
    return this.#groups.values();
  }

  *[Symbol.iterator](): Iterator<Endpoint> {
    for (const { endpoint } of this.#places.values()) yield endpoint;
  }

  /** Takes an endpoint, in the place of an earlier one of the same workload. */
  put(endpoint: Endpoint): void {
    const { workload } = endpoint;
    this.delete(workload.uid);
    this.#plans.clear();
    const key = groupKey(endpoint, this.#scopes);
    const group = this.#groups.get(key) ?? { key, members: [] };
    this.#groups.set(key, group);
    this.#places.set(workload.uid, { endpoint, group, index: group.members.length });
    group.members.push(endpoint);
    for (const text of identityTexts(workload)) {
      this.#identities.set(text, (this.#identities.get(text) ?? 0) + 1);
    }
  }

  /** Forgets the endpoint of a workload, if there is one. */
  delete(uid: string): void {
    const place = this.#places.get(uid);
    if (place === undefined) return;
    this.#plans.clear();
    this.#places.delete(uid);
    const { endpoint, group, index } = place;
    // The last one takes the free place: no other one moves.
    const last = present(group.members.pop(), 'an endpoint is in its group');
    if (last !== endpoint) {
      group.members[index] = last;
      present(this.#places.get(last.workload.uid), 'each endpoint has a place').index = index;
    }
    if (group.members.length === 0) this.#groups.delete(group.key);
    for (const text of identityTexts(endpoint.workload)) {
      const left = (this.#identities.get(text) ?? 1) - 1;
      if (left > 0) this.#identities.set(text, left);
      else this.#identities.delete(text);
    }
  }

  /** Whether a workload is an endpoint. */
  has(uid: string): boolean {
    return this.#places.has(uid);
  }

  /** Where the endpoint of a workload is; null when it is none. */
  placeOf(uid: string): EndpointPlace | null {
    return this.#places.get(uid) ?? null;
  }

  /** Whether some endpoint has the identity, and the address where one is given. */
  hasIdentity(identity: string, ip: string | null = null): boolean {
    return this.#identities.has(ip === null ? identity : `${identity} ${ip}`);
  }

  /** What `make` made under the key since the endpoints changed last. */
  remembered<Plan>(key: string, make: () => Plan): Plan {
    const known = this.#plans.get(key);
    if (known !== undefined) return known as Plan;
    if (this.#plans.size >= REMEMBERED_PLANS_MAX) this.#plans.clear();
    const plan = make();
    this.#plans.set(key, plan);
    return plan;
  }
}

/** The preferences that count: those of modes that have none are ignored (docs/spec/dataplane.md §4). */
export function preferencesOf(balancing: LoadBalancing | null): readonly RoutingScope[] {
  if (balancing === null) return [];
  const { mode, routingPreference } = balancing;
  return mode === 'STRICT' || mode === 'FAILOVER' ? routingPreference : [];
}

/** What a workload is called on one level of locality. */
export function scopeValue(scope: RoutingScope, workload: Workload): string {
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

/** Equal for endpoints that differ in nothing that lib/state/load-balance.ts looks at. */
function groupKey({ workload, ports }: Endpoint, scopes: readonly RoutingScope[]): string {
  return JSON.stringify([
    workload.addresses.length > 0 || workload.hostname !== '',
    workload.network,
    workload.networkGateway !== null,
    workload.capacity,
    workload.applicationTunnel?.port ?? null,
    ports,
    scopes.map((scope) => scopeValue(scope, workload)),
  ]);
}

function identityTexts(workload: Workload): readonly string[] {
  const identity = workloadIdentity(workload);
  return [identity, ...new Set(workload.addresses.map((ip) => `${identity} ${ip}`))];
}
