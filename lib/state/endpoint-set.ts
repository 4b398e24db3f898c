/** Keeps the endpoints of a service so that neither a pick nor a change looks at all of them. */
import { present } from '../errors/assert.ts';
import { REMEMBERED_PLANS_MAX } from './limits.ts';
import type { Endpoint, LoadBalancing, RoutingScope, Service, Workload } from './model.ts';
import { workloadIdentity } from '../net/spiffe.ts';

/** A service with the endpoints it has now. */
export interface ServiceWithEndpoints {
  readonly service: Service;
  readonly endpoints: EndpointSet;
}

/** Endpoints that differ in nothing that a pick looks at; never empty. Valid until the set changes. */
export interface EndpointGroup {
  readonly members: readonly Endpoint[];
}

/** The place of an endpoint in a set. */
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
 * Endpoints by uid, grouped by everything that load balancing looks at. A service has few groups, however many endpoints. A
 * change touches only its endpoint. Iteration follows the order in which endpoints came.
 */
export class EndpointSet implements Iterable<Endpoint> {
  readonly #scopes: readonly RoutingScope[];
  readonly #places = new Map<string, Place>();
  readonly #groups = new Map<string, Group>();
  /** Number of endpoints by identity, and by identity and address. */
  readonly #identities = new Map<string, number>();
  readonly #plans = new Map<string, unknown>();

  /** `balancing` is that of the service; it does not change while the set lives. */
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

  /** Adds an endpoint, or replaces an earlier one of the same workload. */
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

  /** Removes the endpoint of a workload, if there is one. */
  delete(uid: string): void {
    const place = this.#places.get(uid);
    if (place === undefined) return;
    this.#plans.clear();
    this.#places.delete(uid);
    const { endpoint, group, index } = place;
    // The last endpoint takes the free place, so no other one moves.
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

  /** Returns true when a workload is an endpoint. */
  has(uid: string): boolean {
    return this.#places.has(uid);
  }

  /** Returns the place of a workload's endpoint; null when it is none. */
  placeOf(uid: string): EndpointPlace | null {
    return this.#places.get(uid) ?? null;
  }

  /** Returns true when an endpoint has the identity, and the address if one is given. */
  hasIdentity(identity: string, ip: string | null = null): boolean {
    return this.#identities.has(ip === null ? identity : `${identity} ${ip}`);
  }

  /** Returns what `make` made for the key; calls it again after the endpoints changed. */
  remembered<Plan>(key: string, make: () => Plan): Plan {
    const known = this.#plans.get(key);
    if (known !== undefined) return known as Plan;
    if (this.#plans.size >= REMEMBERED_PLANS_MAX) this.#plans.clear();
    const plan = make();
    this.#plans.set(key, plan);
    return plan;
  }
}

/** Returns the preferences that count; modes without preferences ignore them (docs/spec/dataplane.md §4). */
export function preferencesOf(balancing: LoadBalancing | null): readonly RoutingScope[] {
  if (balancing === null) return [];
  const { mode, routingPreference } = balancing;
  return mode === 'STRICT' || mode === 'FAILOVER' ? routingPreference : [];
}

/** Returns the name of a workload's place on one level of locality. */
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

/** Returns the key of a group: equal for endpoints that differ in nothing that lib/state/load-balance.ts looks at. */
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
