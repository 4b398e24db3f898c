/** Finds resources by the keys of clients on demand: addresses, services and nodes (docs/spec/istiod-ambient.md §3.2). */
import { MapOfSets } from '../collections/map-of-sets.ts';
import { tryParseIp } from '../net/address.ts';
import { makePrefix, parsePrefix, prefixContains } from '../net/prefix.ts';
import type { Prefix } from '../net/prefix.ts';
import type { ServedResource } from './wire.ts';

interface Range {
  readonly network: string;
  readonly prefix: Prefix;
}

/** The keys whose meaning a push may have changed. */
export class AffectedKeys {
  readonly keys = new Set<string>();
  readonly nodes = new Set<string>();
  readonly #ranges: Range[] = [];

  /** Adds the ranges of a service. */
  addRanges(ranges: readonly Range[]): void {
    this.#ranges.push(...ranges);
  }

  /** Returns the keys of a client that are affected. */
  *among(keys: ReadonlySet<string>): Generator<string> {
    if (this.#ranges.length === 0 && this.keys.size < keys.size) {
      for (const key of this.keys) if (keys.has(key)) yield key;
      return;
    }
    for (const key of keys) {
      if (this.keys.has(key) || isInRanges(key, this.#ranges)) yield key;
    }
  }
}

/** Slots of resources by key. A slot is the resource's number in its {@link ResourceTable}. */
export class KeyIndex {
  readonly #aliases = new MapOfSets<number>();
  readonly #members = new MapOfSets<number>();
  readonly #nodes = new MapOfSets<number>();
  /** The few services whose address is a range. */
  readonly #ranges = new Map<number, readonly Range[]>();

  add(slot: number, resource: ServedResource): void {
    for (const alias of resource.aliases) this.#aliases.add(alias, slot);
    for (const service of resource.services) this.#members.add(service, slot);
    if (resource.node !== '') this.#nodes.add(resource.node, slot);
    const ranges = rangesOf(resource);
    if (ranges.length > 0) this.#ranges.set(slot, ranges);
  }

  delete(slot: number, resource: ServedResource): void {
    for (const alias of resource.aliases) this.#aliases.delete(alias, slot);
    for (const service of resource.services) this.#members.delete(service, slot);
    if (resource.node !== '') this.#nodes.delete(resource.node, slot);
    this.#ranges.delete(slot);
  }

  /** Slots with this address, or with a range that contains it. */
  withAddress(key: string): readonly number[] {
    const exact = [...this.#aliases.get(key)];
    if (exact.length > 0 || this.#ranges.size === 0) return exact;
    return [...this.#ranges].flatMap(([slot, ranges]) => (isInRanges(key, ranges) ? [slot] : []));
  }

  /** Slots of the workloads of a service. */
  membersOf(service: string): Iterable<number> {
    return this.#members.get(service);
  }

  ofNode(node: string): Iterable<number> {
    return this.#nodes.get(node);
  }

  /** Adds the keys by which a client may reach the resource; `named` finds the services it belongs to. */
  addKeys(
    resource: ServedResource,
    affected: AffectedKeys,
    named: (name: string) => ServedResource | null,
  ): void {
    const owners = resource.services.flatMap((name) => named(name) ?? []);
    for (const { name, aliases } of [resource, ...owners]) {
      affected.keys.add(name);
      for (const alias of aliases) affected.keys.add(alias);
    }
    if (resource.node !== '') affected.nodes.add(resource.node);
    for (const service of [resource, ...owners]) affected.addRanges(rangesOf(service));
  }
}

/** The ranges among a service's aliases, which have the form `network/ip/length`. */
function rangesOf({ isService, aliases }: ServedResource): Range[] {
  if (!isService) return [];
  return aliases.flatMap((alias) => {
    const [network = '', ip = '', length] = alias.split('/');
    return length === undefined
      ? []
      : [{ network, prefix: makePrefix(parsePrefix(ip), Number(length)) }];
  });
}

function isInRanges(key: string, ranges: readonly Range[]): boolean {
  const slash = key.indexOf('/');
  const address = slash === -1 ? null : tryParseIp(key.slice(slash + 1));
  if (address === null) return false;
  const network = key.slice(0, slash);
  return ranges.some((range) => range.network === network && prefixContains(range.prefix, address));
}
