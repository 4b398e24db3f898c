/** Indexes all resources by name and by the other keys of a subscription. */
import { parseIp, tryParseIp } from '../../../lib/net/address.ts';
import { makePrefix, prefixContains } from '../../../lib/net/prefix.ts';
import type { Prefix } from '../../../lib/net/prefix.ts';
import type { ResourceSource } from '../../../lib/xds/type-subscription.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../lib/xds/type-urls.ts';
import type { ResourceType } from '../../../lib/xds/type-urls.ts';
import type { MappedResource } from './resource.ts';

interface Range {
  readonly network: string;
  readonly prefix: Prefix;
}

/** The resources that the delta server serves. */
export class ResourceIndex implements ResourceSource {
  readonly #byType = new Map<string, Map<string, MappedResource>>([
    [ADDRESS_TYPE, new Map()],
    [AUTHORIZATION_TYPE, new Map()],
  ]);
  readonly #aliases = new Map<string, Set<string>>();
  readonly #members = new Map<string, Set<string>>();
  readonly #nodes = new Map<string, Set<string>>();
  /** The few services whose VIP is a range. */
  readonly #ranges = new Map<string, readonly Range[]>();

  get(type: string, name: string): MappedResource | undefined {
    return this.#byType.get(type)?.get(name);
  }

  names(type: string): Iterable<string> {
    return this.#byType.get(type)?.keys() ?? [];
  }

  /** The resources of a type. */
  of(type: ResourceType): ReadonlyMap<string, MappedResource> {
    return this.#byType.get(type) ?? new Map<string, MappedResource>();
  }

  /** Names by resource name, else by address. A service brings its workloads (docs/spec/istiod-ambient.md §3.2). */
  resolve(type: string, key: string): readonly string[] {
    const exact = this.get(type, key);
    if (exact !== undefined) return this.#withMembers(exact);
    if (type !== ADDRESS_TYPE) return [];
    const direct = [...(this.#aliases.get(key) ?? [])];
    const workloads = direct.filter((name) => this.#isWorkload(name));
    if (workloads.length > 0) return workloads;
    const services = direct.length > 0 ? direct : this.#inRange(key);
    const found = services.flatMap((name) => this.#membersOf(name));
    return [...new Set(found)];
  }

  ofNode(type: string, node: string): readonly string[] {
    if (type !== ADDRESS_TYPE || node === '') return [];
    return [...(this.#nodes.get(node) ?? [])];
  }

  /** Replaces a resource; undefined removes it. */
  replace(type: ResourceType, name: string, resource: MappedResource | undefined): void {
    this.#delete(type, name);
    if (resource !== undefined) this.#add(resource);
  }

  #add(resource: MappedResource): void {
    this.#byType.get(resource.type)?.set(resource.name, resource);
    const { name } = resource;
    for (const alias of resource.aliases) add(this.#aliases, alias, name);
    for (const service of resource.services) add(this.#members, service, name);
    if (resource.node !== '') add(this.#nodes, resource.node, name);
    const ranges = rangesOf(resource);
    if (ranges.length > 0) this.#ranges.set(name, ranges);
  }

  #delete(type: ResourceType, name: string): void {
    const resource = this.get(type, name);
    if (resource === undefined) return;
    this.#byType.get(type)?.delete(name);
    for (const alias of resource.aliases) remove(this.#aliases, alias, name);
    for (const service of resource.services) remove(this.#members, service, name);
    if (resource.node !== '') remove(this.#nodes, resource.node, name);
    if (type === ADDRESS_TYPE) this.#ranges.delete(name);
  }

  #isWorkload(name: string): boolean {
    return this.get(ADDRESS_TYPE, name)?.isService === false;
  }

  #withMembers(resource: MappedResource): readonly string[] {
    return resource.isService ? this.#membersOf(resource.name) : [resource.name];
  }

  #membersOf(name: string): string[] {
    return [name, ...(this.#members.get(name) ?? [])];
  }

  /** Services whose range contains the address of a `network/ip` key. */
  #inRange(key: string): string[] {
    const slash = key.indexOf('/');
    const address = slash === -1 ? null : tryParseIp(key.slice(slash + 1));
    if (address === null) return [];
    const network = key.slice(0, slash);
    const names: string[] = [];
    for (const [name, ranges] of this.#ranges) {
      const holds = ranges.some(
        (range) => range.network === network && prefixContains(range.prefix, address),
      );
      if (holds) names.push(name);
    }
    return names;
  }
}

/** The ranges among the aliases of a service: `network/ip/length`. */
function rangesOf(resource: MappedResource): Range[] {
  return resource.aliases.flatMap((alias) => {
    const [network = '', ip = '', length] = alias.split('/');
    return length === undefined
      ? []
      : [{ network, prefix: makePrefix(parseIp(ip), Number(length)) }];
  });
}

function add(index: Map<string, Set<string>>, key: string, name: string): void {
  const names = index.get(key);
  if (names === undefined) index.set(key, new Set([name]));
  else names.add(name);
}

function remove(index: Map<string, Set<string>>, key: string, name: string): void {
  const names = index.get(key);
  names?.delete(name);
  if (names?.size === 0) index.delete(key);
}
