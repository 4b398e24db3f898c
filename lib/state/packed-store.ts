/** Keeps the mesh as packed bytes with indexes (docs/spec/control.md §3.2 to §3.4, docs/decisions/order-independent-state.md). No I/O. */
import { compareText } from '../collections/compare.ts';
import { present } from '../errors/assert.ts';
import { HashIndex } from './hash-index.ts';
import { AskedAddresses, IdIndex, RangeIndex } from './id-index.ts';
import { ASKED_ADDRESSES_MAX, DECODED_CACHE_MAX } from './limits.ts';
import { serviceKey } from './model.ts';
import { EndpointSet } from './endpoint-set.ts';
import type { ServiceWithEndpoints } from './endpoint-set.ts';
import type { Endpoint, Service, Workload } from './model.ts';
import { rangeOf } from './range.ts';
import { RowTable } from './row-table.ts';
import { StaleIds } from './stale-ids.ts';
import type { Answer, AnswerHead, LookupKey } from './view.ts';

/** A decoded row of the `addresses` table. */
export type AddressResource =
  | { readonly kind: 'workload'; readonly workload: Workload }
  | { readonly kind: 'service'; readonly service: Service };

/** Decodes the bytes of an istio.workload.Address; throws XDS_RESOURCE. */
export type DecodeAddress = (bytes: Uint8Array) => AddressResource;

/** Settings of a {@link PackedStore}. */
export interface PackedStoreOptions {
  /** {@link PackedStore.localWorkload} finds only workloads of this node; all when left out. */
  readonly node?: string;
  /** Is called after a change for each endpoint that may differ, with the key of a service, known or not, and a workload's uid. */
  readonly endpointChanged?: (service: string, uid: string) => void;
}

/**
 * Answers lookups about the mesh. The answers depend only on the rows, never on the order in which they came. Rows stay
 * encoded; decoded forms live in a bounded cache, and callers must not change them.
 */
export class PackedStore {
  readonly #decode: DecodeAddress;
  readonly #node: string | null;
  readonly #endpointChanged: NonNullable<PackedStoreOptions['endpointChanged']>;
  readonly #rows = new RowTable();
  /** Rows that were looked up; a row that only came is not kept decoded. */
  readonly #decoded = new Map<number, AddressResource>();
  /** The row that came last, because its caller looks at it next. */
  #newest: { readonly id: number; readonly resource: AddressResource } | null = null;
  /** Workloads by `network/ip`. */
  readonly #byAddress = new HashIndex();
  readonly #byVip = new IdIndex();
  readonly #byRange = new RangeIndex();
  readonly #byHostname = new IdIndex();
  /** Workloads with a hostname, by `namespace/hostname`. */
  readonly #workloadHostnames = new IdIndex();
  /** Workloads by `namespace/name`. */
  readonly #byPodName = new IdIndex();
  /** Services by `namespace/name`. */
  readonly #byServiceName = new IdIndex();
  /** Workloads that list a service, known or not, by service key. */
  readonly #members = new IdIndex();
  /** Rows whose name is not the identity of their resource, by that identity. */
  readonly #misnamed = new IdIndex();
  /** The identities of these rows. */
  readonly #identities = new Map<number, string>();
  readonly #asked = new AskedAddresses(ASKED_ADDRESSES_MAX);

  constructor(decode: DecodeAddress, options: PackedStoreOptions = {}) {
    this.#decode = decode;
    this.#node = options.node ?? null;
    this.#endpointChanged = options.endpointChanged ?? (() => undefined);
  }

  /** Number of rows. */
  get size(): number {
    return this.#rows.size;
  }

  /** Bytes in packed form, without indexes. */
  get packedBytes(): number {
    return this.#rows.allocatedBytes;
  }

  /** The names of all rows. */
  *names(): Generator<string> {
    for (const id of this.#rows.ids()) yield this.#rows.name(id);
  }

  /**
   * Applies a row of the `addresses` table; null removes it. Returns the lookup ids whose answers may have changed in more than
   * their endpoints; null = all. Throws XDS_RESOURCE for bytes that cannot be decoded; the row stays as it was then.
   */
  apply(name: string, bytes: Uint8Array | null): readonly string[] | null {
    const resource = bytes === null ? null : this.#decode(bytes);
    const id = this.#rows.find(name);
    if (id === undefined && resource === null) return [];
    if (id !== undefined && bytes !== null && sameBytes(this.#rows.bytes(id), bytes)) return [];
    const stale = new StaleIds(this.#asked);
    if (id !== undefined) this.#remove(name, id, stale);
    if (resource !== null && bytes !== null) this.#insert(name, bytes, resource, stale);
    stale.eachEndpoint(this.#endpointChanged);
    return stale.ids();
  }

  /** Answers a lookup; see {@link Answer}. Services are sorted by key, endpoints and equal-ranked workloads by uid. */
  lookup(key: LookupKey): Answer {
    const { workloads, services } = this.head(key);
    return { workloads, services: services.map((service) => this.#withEndpoints(service)) };
  }

  /** Answers a lookup without the endpoints, at a cost that does not grow with them. */
  head(key: LookupKey): AnswerHead {
    switch (key.kind) {
      case 'address': {
        this.#asked.ask(key.network, key.ip);
        const text = `${key.network}/${key.ip}`;
        const vips = new Set(this.#byVip.get(text));
        for (const id of this.#byRange.containing(key.network, key.ip)) vips.add(id);
        const workloads = this.#workloads(new Set(this.#byAddress.candidates(text)));
        return {
          workloads: workloads.filter((workload) => hasAddress(workload, key)).sort(byRank),
          services: this.#serviceObjects(vips),
        };
      }
      case 'service': {
        const text = `${key.namespace}/${key.hostname}`;
        return {
          workloads: this.#workloads(this.#workloadHostnames.get(text)),
          services: this.#serviceObjects(this.#named(text)),
        };
      }
      case 'hostname':
        return {
          workloads: [],
          services: this.#serviceObjects(this.#byHostname.get(key.hostname)),
        };
      case 'uid':
        return { workloads: this.#workloads(this.#named(key.uid)), services: [] };
    }
  }

  /** Returns a service without its endpoints; undefined when it is not known. */
  serviceOf(key: string): Service | undefined {
    return this.#serviceObjects(this.#named(key))[0];
  }

  /** Returns the uids of all workloads that list a service, known or not, healthy or not, in no particular order. */
  members(service: string): readonly string[] {
    const uids = new Set<string>();
    for (const id of this.#members.get(service)) {
      uids.add(this.#identities.get(id) ?? this.#rows.name(id));
    }
    return [...uids];
  }

  /** Returns one endpoint as {@link lookup} does; null when the workload is no endpoint of the service. */
  endpoint(service: string, uid: string): Endpoint | null {
    const known = this.serviceOf(service);
    const [workload] = this.#workloads(this.#named(uid));
    return known === undefined || workload === undefined ? null : endpointOf(known, workload);
  }

  /**
   * Returns the workload of a pod by exact names on the node, or on any node when `node` is empty (docs/spec/dataplane.md
   * §1); null when there is none.
   */
  localWorkload(
    namespace: string,
    name: string,
    serviceAccount: string,
    node: string,
  ): Workload | null {
    const found = this.workloadsNamed(namespace, name).find(
      (workload) =>
        workload.serviceAccount === serviceAccount && (node === '' || workload.node === node),
    );
    return found ?? null;
  }

  /** Workloads by namespace and name, sorted by uid. */
  workloadsNamed(namespace: string, name: string): readonly Workload[] {
    return this.#workloads(this.#byPodName.get(`${namespace}/${name}`));
  }

  /** Services by namespace and short name, sorted by key. */
  servicesNamed(namespace: string, name: string): readonly ServiceWithEndpoints[] {
    return this.#services(this.#byServiceName.get(`${namespace}/${name}`));
  }

  /** Returns the known services that a workload lists, sorted by key (docs/spec/dataplane.md §3). */
  servicesOf(workload: Workload): readonly Service[] {
    return Object.keys(workload.services)
      .sort()
      .flatMap((key) => this.#serviceObjects(this.#named(key)));
  }

  /** Returns a service with its present endpoints; undefined when it is not known. */
  service(key: string): ServiceWithEndpoints | undefined {
    return this.#services(this.#named(key))[0];
  }

  /** Yields all resources, decoded one by one, in no particular order. */
  *resources(): IterableIterator<AddressResource> {
    for (const id of this.#rows.ids()) if (!this.#shadowed(id)) yield this.#resource(id);
  }

  /** Returns a row, decoded; undefined when there is none. */
  resource(name: string): AddressResource | undefined {
    const id = this.#rows.find(name);
    return id === undefined ? undefined : this.#resource(id);
  }

  #insert(name: string, bytes: Uint8Array, resource: AddressResource, stale: StaleIds): void {
    const id = this.#rows.add(name, bytes);
    this.#newest = { id, resource };
    this.#index(id, resource, 'add');
    const identity = identityOf(resource);
    if (identity !== name) {
      this.#misnamed.add(identity, id);
      this.#identities.set(id, identity);
    }
    this.#collectStale(resource, stale);
  }

  #remove(name: string, id: number, stale: StaleIds): void {
    const resource = this.#resource(id);
    this.#collectStale(resource, stale);
    this.#index(id, resource, 'delete');
    const identity = identityOf(resource);
    if (identity !== name) {
      this.#misnamed.delete(identity, id);
      this.#identities.delete(id);
    }
    this.#decoded.delete(id);
    if (this.#newest?.id === id) this.#newest = null;
    this.#rows.delete(id);
  }

  #index(id: number, resource: AddressResource, change: 'add' | 'delete'): void {
    if (resource.kind === 'service') {
      const { service } = resource;
      this.#byHostname[change](service.hostname, id);
      this.#byServiceName[change](`${service.namespace}/${service.name}`, id);
      for (const address of service.addresses) {
        const range = rangeOf(address);
        if (range === null) this.#byVip[change](`${address.network}/${address.ip}`, id);
        else this.#byRange[change](address.network, range, id);
      }
      return;
    }
    const { workload } = resource;
    if (workload.networkMode !== 'HOST_NETWORK') {
      for (const ip of workload.addresses) this.#byAddress[change](`${workload.network}/${ip}`, id);
    }
    if (workload.hostname !== '') {
      this.#workloadHostnames[change](`${workload.namespace}/${workload.hostname}`, id);
    }
    if (this.#node === null || workload.node === this.#node) {
      this.#byPodName[change](`${workload.namespace}/${workload.name}`, id);
    }
    for (const key of Object.keys(workload.services)) this.#members[change](key, id);
  }

  /** Marks the lookups whose answers hold the resource, or another row of the same identity. */
  #collectStale(resource: AddressResource, stale: StaleIds): void {
    this.#collectOwn(resource, stale);
    for (const id of this.#named(identityOf(resource))) this.#collectOwn(this.#resource(id), stale);
  }

  #collectOwn(resource: AddressResource, stale: StaleIds): void {
    if (resource.kind === 'service') {
      stale.addService(resource.service);
      return;
    }
    const { workload } = resource;
    stale.add({ kind: 'uid', uid: workload.uid });
    if (workload.networkMode !== 'HOST_NETWORK') {
      for (const ip of workload.addresses) {
        stale.add({ kind: 'address', network: workload.network, ip });
      }
    }
    if (workload.hostname !== '') {
      stale.add({
        kind: 'service',
        namespace: workload.namespace,
        hostname: workload.hostname,
      });
    }
    for (const key of Object.keys(workload.services)) stale.addEndpoint(key, workload.uid);
  }

  /** Returns the rows of the identity, under all names. */
  #named(identity: string): ReadonlySet<number> {
    const ids = new Set(this.#misnamed.get(identity));
    const id = this.#rows.find(identity);
    if (id !== undefined && identityOf(this.#resource(id)) === identity) ids.add(id);
    return ids;
  }

  /** Chooses the row that counts for an identity: the row of that name, else the first by name. */
  #shadowed(id: number): boolean {
    const name = this.#rows.name(id);
    const resource = this.#resource(id);
    const identity = identityOf(resource);
    if (identity === name) return false;
    for (const other of this.#named(identity)) {
      const otherName = this.#rows.name(other);
      if (other === id || this.#resource(other).kind !== resource.kind) continue;
      if (otherName === identity || otherName < name) return true;
    }
    return false;
  }

  #workloads(ids: Iterable<number>): Workload[] {
    const found: Workload[] = [];
    for (const id of ids) {
      const resource = this.#resource(id);
      if (resource.kind === 'workload' && !this.#shadowed(id)) found.push(resource.workload);
    }
    return found.sort(byUid);
  }

  #serviceObjects(ids: Iterable<number>): Service[] {
    const found: Service[] = [];
    for (const id of ids) {
      const resource = this.#resource(id);
      if (resource.kind === 'service' && !this.#shadowed(id)) found.push(resource.service);
    }
    return found.sort((left, right) => compareText(serviceKey(left), serviceKey(right)));
  }

  #services(ids: Iterable<number>): ServiceWithEndpoints[] {
    return this.#serviceObjects(ids).map((service) => this.#withEndpoints(service));
  }

  #withEndpoints(service: Service): ServiceWithEndpoints {
    const endpoints = this.#workloads(this.#members.get(serviceKey(service))).flatMap(
      (workload) => endpointOf(service, workload) ?? [],
    );
    return { service, endpoints: new EndpointSet(service.loadBalancing, endpoints) };
  }

  #resource(id: number): AddressResource {
    if (this.#newest?.id === id) return this.#newest.resource;
    const known = this.#decoded.get(id);
    if (known !== undefined) return known;
    const resource = this.#decode(this.#rows.bytes(id));
    this.#decoded.set(id, resource);
    if (this.#decoded.size > DECODED_CACHE_MAX) {
      const [oldest] = this.#decoded.keys();
      this.#decoded.delete(present(oldest, 'the cache holds something'));
    }
    return resource;
  }
}

/** Returns the endpoint; null when the workload does not serve the service, or is unhealthy and must not. */
function endpointOf(service: Service, workload: Workload): Endpoint | null {
  const ports = workload.services[serviceKey(service)];
  const unhealthyToo = service.loadBalancing?.healthPolicy === 'ALLOW_ALL';
  if (ports === undefined || !(unhealthyToo || workload.status === 'HEALTHY')) return null;
  return { workload, ports };
}

function identityOf(resource: AddressResource): string {
  return resource.kind === 'workload' ? resource.workload.uid : serviceKey(resource.service);
}

/** True when the workload is found by the address. */
function hasAddress(
  { addresses, network, networkMode }: Workload,
  key: { readonly network: string; readonly ip: string },
): boolean {
  return networkMode !== 'HOST_NETWORK' && network === key.network && addresses.includes(key.ip);
}

/** Ranks a workload among those of one address (docs/spec/dataplane.md §3). */
function rank(workload: Workload): number {
  const pod = workload.uid.includes('//Pod/') ? 2 : 0;
  return pod + (workload.tunnelProtocol === 'HBONE' ? 1 : 0);
}

function byRank(left: Workload, right: Workload): number {
  return rank(right) - rank(left) || byUid(left, right);
}

function byUid(left: Workload, right: Workload): number {
  return compareText(left.uid, right.uid);
}

function sameBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  for (let index = 0; index < left.length; index += 1) {
    if (left[index] !== right[index]) return false;
  }
  return true;
}
