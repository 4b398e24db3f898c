/** The resources of one type as the clients of a delta server see them: the state of the last push. */
import type { Steps } from '../async/shared-slices.ts';
import { BitSet } from '../collections/bit-set.ts';
import { KeyIndex } from './key-index.ts';
import type { AffectedKeys } from './key-index.ts';
import type { ServedResource } from './wire.ts';

/** Names of removed resources that are kept before it is worth looking which of them no client needs. */
const MIN_GONE = 1_024;
/** The same, as a part of the resources. */
const GONE_SHARE = 8;

/**
 * Gives every name a number (its slot), so that a client costs one bit for each name it is owed or holds. The name of a
 * removed resource keeps its slot until no client has to be told.
 */
export class ResourceTable {
  readonly #slots = new Map<string, number>();
  readonly #names: string[] = [];
  readonly #resources: (ServedResource | null)[] = [];
  readonly #free: number[] = [];
  readonly #index = new KeyIndex();
  readonly #live = new BitSet();
  readonly #gone = new BitSet();
  /** Slots that the running {@link reclaim} may free. */
  #candidates: BitSet | null = null;

  /** Slots of the resources that exist. Read only. */
  get live(): BitSet {
    return this.#live;
  }

  /** Slots of removed names. Read only. */
  get gone(): BitSet {
    return this.#gone;
  }

  /** Slot of a resource that exists; -1 without one. */
  slotOf(name: string): number {
    const slot = this.#slots.get(name);
    return slot !== undefined && this.#live.has(slot) ? slot : -1;
  }

  /** Throws TypeError for a slot that was never given. */
  nameAt(slot: number): string {
    const name = this.#names[slot];
    if (name === undefined) throw new TypeError(`no name has slot ${slot}`);
    return name;
  }

  /** The resource of a slot; null when it was removed. */
  at(slot: number): ServedResource | null {
    return this.#resources[slot] ?? null;
  }

  get(name: string): ServedResource | null {
    return this.at(this.#slots.get(name) ?? -1);
  }

  /** The resources, in the order of their slots. */
  *resources(): Generator<ServedResource> {
    for (const slot of this.#live) {
      const resource = this.at(slot);
      if (resource !== null) yield resource;
    }
  }

  /**
   * Sets or removes a resource, and adds to `affected` the keys by which clients reach it. Returns its slot; null when
   * clients have nothing to be told.
   */
  apply(
    name: string,
    resource: ServedResource | null,
    affected: AffectedKeys | null,
  ): number | null {
    const known = this.#slots.get(name);
    const before = known === undefined ? null : this.at(known);
    if (before === null && resource === null) return null;
    const slot = known ?? this.#newSlot(name);
    if (before !== null) {
      this.#noteKeys(before, affected);
      this.#index.delete(slot, before);
    }
    this.#resources[slot] = resource;
    this.#candidates?.delete(slot);
    if (resource === null) {
      this.#live.delete(slot);
      this.#gone.add(slot);
      return slot;
    }
    this.#gone.delete(slot);
    this.#live.add(slot);
    this.#index.add(slot, resource);
    this.#noteKeys(resource, affected);
    return before?.version === resource.version ? null : slot;
  }

  /** Slots that a key stands for: a resource's own name, else an address. A service brings its workloads. */
  resolve(key: string): readonly number[] {
    const exact = this.slotOf(key);
    if (exact !== -1) return this.#withMembers(exact);
    const found = this.#index.withAddress(key);
    const workloads = found.filter((slot) => this.at(slot)?.isService === false);
    if (workloads.length > 0) return workloads;
    return [...new Set(found.flatMap((slot) => this.#withMembers(slot)))];
  }

  /** Slots of the workloads of a node. */
  ofNode(node: string): Iterable<number> {
    return node === '' ? [] : this.#index.ofNode(node);
  }

  /** True when {@link reclaim} is worth its time. */
  get hasMuchGone(): boolean {
    return this.#gone.size > Math.max(MIN_GONE, this.#live.size / GONE_SHARE);
  }

  /** Frees the slots of removed names that are in none of the clients' sets. */
  *reclaim(needed: Iterable<BitSet>): Steps {
    const candidates = new BitSet();
    candidates.addAll(this.#gone);
    this.#candidates = candidates;
    for (const slots of needed) {
      candidates.deleteAll(slots);
      yield;
    }
    this.#candidates = null;
    for (const slot of candidates) {
      this.#gone.delete(slot);
      this.#slots.delete(this.nameAt(slot));
      this.#free.push(slot);
    }
  }

  #newSlot(name: string): number {
    const slot = this.#free.pop() ?? this.#names.length;
    this.#names[slot] = name;
    this.#slots.set(name, slot);
    return slot;
  }

  #noteKeys(resource: ServedResource, affected: AffectedKeys | null): void {
    if (affected !== null) this.#index.addKeys(resource, affected, (name) => this.get(name));
  }

  #withMembers(slot: number): readonly number[] {
    const resource = this.at(slot);
    if (resource?.isService !== true) return [slot];
    return [slot, ...this.#index.membersOf(resource.name)];
  }
}
