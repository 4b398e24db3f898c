import type { Mark } from '../../../lib/bus/table-writer.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { serviceKey } from '../../../lib/state/model.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';
import { PackedStore } from '../../../lib/state/packed-store.ts';
import { rangeOf } from '../../../lib/state/range.ts';
import { ON_DEMAND_ROW, keyOfWanted } from '../../../lib/state/wanted-name.ts';
import type { ResourceSink } from '../../../lib/xds/delta-client.ts';
import { decodeAddress } from '../../../lib/xds/resources/address.ts';
import type { ResourceChanges, ResourceFailure } from '../../../lib/xds/subscriptions.ts';
import { ADDRESS_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import {
  ABSENT_RECHECKS_PER_SECOND,
  ABSENT_RECHECK_MS,
  WANTED_IDLE_MS,
  WANTED_IN_USE_MS,
  WANTED_NAMES_MAX,
} from '../limits.ts';
import { LOCAL_TAG } from '../mesh-state.ts';
import type { MeshState } from '../mesh-state.ts';
import { WantedNames } from './wanted-names.ts';
import type { WantedBounds } from './wanted-names.ts';

const BOUNDS: WantedBounds = {
  max: WANTED_NAMES_MAX,
  idleMs: WANTED_IDLE_MS,
  inUseMs: WANTED_IN_USE_MS,
  recheckMs: ABSENT_RECHECK_MS,
  rechecks: ABSENT_RECHECKS_PER_SECOND,
};

/** Collaborators of {@link OnDemandMesh}. */
export interface OnDemandDeps {
  readonly state: MeshState;
  readonly clock: Clock;
  readonly log: Logger;
  /** There are names to ask for, or rows to write. */
  readonly changed: () => void;
  readonly bounds?: WantedBounds;
}

/**
 * The part of the mesh that node-proxies ask for (docs/decisions/on-demand.md): takes their names, and what the control plane has
 * under them. The table `names` tells the node-proxies which names are answered, and which state of the table `addresses` holds the
 * answer.
 */
export class OnDemandMesh implements ResourceSink {
  /** The names, for the requests to the control plane. */
  readonly names: WantedNames;
  readonly #deps: OnDemandDeps;
  /** The rows of `addresses`, by what they can be asked for. */
  #store = new PackedStore(decodeAddress);
  /** Lookup ids of changed rows since the last whole answer; null = all. */
  #stale: Set<string> | null = new Set();
  /** Names that an answer in several parts has told about so far. */
  readonly #told = new Set<string>();
  /** Names that have their answer in memory, but no row that says so. */
  readonly #answered = new Set<string>();
  #epoch: string | null = null;
  #refused = 0;

  constructor(deps: OnDemandDeps) {
    this.#deps = deps;
    this.names = new WantedNames(deps.bounds ?? BOUNDS, () => deps.clock.monotonic());
    const { addresses } = deps.state.tables;
    addresses.onChange = (name) => this.#mirror(name);
    deps.state.onLoad = () => this.#loaded();
    deps.state.tables.names.set(ON_DEMAND_ROW, { value: new Uint8Array(), tag: '' });
    this.#loaded();
  }

  /** Requests for new names that were refused, because there were too many. */
  get refused(): number {
    return this.#refused;
  }

  /** Takes names that node-proxies ask for. */
  want(names: readonly string[]): void {
    let fresh = 0;
    let refused = 0;
    for (const name of names) {
      if (keyOfWanted(name) === null) continue;
      const outcome = this.names.want(name, (oldest) => this.#giveUp([oldest]));
      if (outcome === 'new') fresh += 1;
      if (outcome === 'refused') refused += 1;
    }
    this.#refused += refused;
    if (refused > 0) {
      this.#deps.log.warn({ refused, names: this.names.size }, 'names.refused');
    }
    if (fresh > 0) this.#deps.changed();
  }

  /** Gives up idle names, and asks again for those without a resource; call it every second. */
  tick(): void {
    const idle = this.names.idle();
    if (idle.length > 0) this.#giveUp(idle);
    this.names.recheck();
    this.#deps.changed();
  }

  versions(type: ResourceType): ReadonlyMap<string, string> {
    return this.#deps.state.versions(type);
  }

  async apply(type: ResourceType, response: ResourceChanges): Promise<readonly ResourceFailure[]> {
    const failures = await this.#deps.state.apply(type, response);
    if (type !== ADDRESS_TYPE) return failures;
    // Names of a refused resource stay without an answer: nobody knows its contents.
    const refused = new Set(failures.map(({ name }) => name));
    for (const { name, aliases = [] } of response.resources) {
      if (!refused.has(name)) for (const told of [name, ...aliases]) this.#told.add(told);
    }
    for (const name of response.removed) this.#told.add(name);
    if (response.whole) this.#settle();
    return failures;
  }

  /**
   * Call it when the table `addresses` in Redis is as in memory, at `mark`: makes the rows that name the answers. Returns true when
   * there are any to write.
   */
  stamp({ epoch, version }: Mark): boolean {
    if (epoch !== this.#epoch) {
      this.#epoch = epoch;
      for (const name of this.names.names()) if (!this.names.waits(name)) this.#answered.add(name);
    }
    const value = Buffer.from(`${epoch}/${version}`);
    const { names } = this.#deps.state.tables;
    for (const name of this.#answered) names.set(name, { value, tag: '' });
    const any = this.#answered.size > 0;
    this.#answered.clear();
    return any;
  }

  #answer(name: string): void {
    if (this.names.answer(name)) this.#answered.add(name);
  }

  /** The rows were replaced by those of Redis. Rows that no name leads to are left from an ingester that followed the whole mesh. */
  #loaded(): void {
    const { addresses, names } = this.#deps.state.tables;
    const wasOnDemand = names.get(ON_DEMAND_ROW) !== undefined;
    names.set(ON_DEMAND_ROW, { value: new Uint8Array(), tag: '' });
    if (!wasOnDemand) {
      for (const [name, { tag }] of addresses.entries()) {
        if (tag !== LOCAL_TAG) addresses.delete(name);
      }
    }
    this.#store = new PackedStore(decodeAddress);
    for (const [name, { value }] of addresses.entries()) this.#store.apply(name, value);
    this.names.clear();
    for (const [name, { value }] of names.entries()) {
      if (name === ON_DEMAND_ROW) continue;
      this.#epoch = Buffer.from(value).toString().split('/')[0] ?? null;
      this.names.add(name, true);
      this.names.note(name, this.#isFound(name));
    }
    this.#stale = new Set();
    this.#told.clear();
    this.#answered.clear();
  }

  /** Follows a row of `addresses`. */
  #mirror(name: string): void {
    const stale = this.#store.apply(
      name,
      this.#deps.state.tables.addresses.get(name)?.value ?? null,
    );
    if (stale === null) this.#stale = null;
    for (const id of stale ?? []) this.#stale?.add(id);
  }

  /** Looks at the names that were told about, and at those whose resources changed. */
  #settle(): void {
    for (const name of this.#told) this.#answer(name);
    this.#told.clear();
    const names = this.#stale === null ? this.names.names() : [...this.#stale].map(nameOf);
    this.#stale = new Set();
    for (const name of names) {
      if (!this.names.has(name)) continue;
      const found = this.#isFound(name);
      if (this.names.note(name, found)) {
        this.#answered.delete(name);
        this.#deps.state.tables.names.delete(name);
      } else if (found) this.#answer(name);
    }
    this.#deps.changed();
  }

  #isFound(name: string): boolean {
    const key = keyOfWanted(name);
    if (key === null) return false;
    const { workloads, services } = this.#store.head(key);
    return workloads.length + services.length > 0;
  }

  /** Gives up names, and the resources that only they led to. */
  #giveUp(idle: readonly string[]): void {
    const reached = new Map<string, Workload | Service>();
    for (const name of idle) {
      for (const [row, resource] of this.#reachedBy(name)) reached.set(row, resource);
      this.names.drop(name);
      this.#answered.delete(name);
      this.#deps.state.tables.names.delete(name);
    }
    const { addresses } = this.#deps.state.tables;
    let dropped = 0;
    for (const [row, resource] of reached) {
      const held = addresses.get(row);
      if (held === undefined || held.tag === LOCAL_TAG || this.#isWanted(resource)) continue;
      addresses.delete(row);
      this.names.unsubscribe(row);
      dropped += 1;
    }
    this.#deps.log.info({ names: idle.length, resources: dropped }, 'names.unsubscribed');
  }

  *#reachedBy(name: string): Generator<readonly [string, Workload | Service]> {
    const key = keyOfWanted(name);
    if (key === null) return;
    const { workloads, services } = this.#store.head(key);
    for (const workload of workloads) yield [workload.uid, workload];
    for (const service of services) {
      const named = serviceKey(service);
      yield [named, service];
      for (const uid of this.#store.members(named)) {
        const [workload] = this.#store.head({ kind: 'uid', uid }).workloads;
        if (workload !== undefined) yield [uid, workload];
      }
    }
  }

  #isWanted(resource: Workload | Service): boolean {
    if (!('uid' in resource)) return this.#isServiceWanted(resource);
    const { uid, network, namespace, hostname, addresses, services } = resource;
    const own = [uid, `${namespace}/${hostname}`, ...addresses.map((ip) => `${network}/${ip}`)];
    if (own.some((name) => this.names.has(name))) return true;
    return Object.keys(services).some((key) => {
      const service = this.#store.serviceOf(key);
      return service !== undefined && this.#isServiceWanted(service);
    });
  }

  #isServiceWanted(service: Service): boolean {
    if (this.names.has(serviceKey(service))) return true;
    if (service.addresses.some(({ network, ip }) => this.names.has(`${network}/${ip}`)))
      return true;
    // An address inside a range leads to the service, too. Few services have ranges.
    if (service.addresses.every((address) => rangeOf(address) === null)) return false;
    const key = serviceKey(service);
    for (const name of this.names.names()) {
      const address = keyOfWanted(name);
      if (address?.kind !== 'address') continue;
      if (this.#store.head(address).services.some((found) => serviceKey(found) === key))
        return true;
    }
    return false;
  }
}

/** Returns the name that a lookup id stands for: the id without its kind. */
function nameOf(id: string): string {
  return id.slice(id.indexOf(':') + 1);
}
