/** Encodes answers once and shares them between the clients that are owed the same resources. */
import { BitSet } from '../collections/bit-set.ts';
import type { ResourceTable } from './resource-table.ts';
import { encodeResponse } from './wire.ts';
import type { ServedResource } from './wire.ts';

/**
 * Largest response, unless one resource is larger. A larger answer goes in several responses, one after the other as the
 * client acknowledges them. So a client that reads slowly costs no more than this.
 */
export const MAX_RESPONSE_BYTES = 512 * 1024;
/** Bytes of answers of one type that are kept for other clients; a mesh of a hundred thousand pods has 40 MB. */
const MAX_KEPT_BYTES = 96 * 1024 * 1024;
/** Answers of one type that are kept. */
const MAX_KEPT_ANSWERS = 512;
/** Kept answers that begin with the same resource. */
const MAX_VARIANTS = 4;
/**
 * Answers are cut where a page of this many slots begins. So two clients that are owed different changes, and then the
 * same rest, share the rest.
 */
const PAGE_SLOTS = 1_024;
/** Bytes of a resource's version and framing. */
const RESOURCE_OVERHEAD_BYTES = 128;

/** A response ready to be written. */
export interface SharedAnswer {
  readonly bytes: Buffer;
  readonly nonce: string;
  readonly resources: number;
  /** False when another response of the same answer follows. */
  readonly isLast: boolean;
}

/** Everything that a client is owed. */
export interface Owed {
  readonly slots: BitSet;
  /** Names without a slot, to be reported as removed. */
  readonly unknown: Set<string>;
  readonly withAliases: boolean;
}

interface KeptAnswer extends SharedAnswer {
  readonly slots: BitSet;
  readonly first: number;
  readonly last: number;
  readonly withAliases: boolean;
  usedAtMs: number;
}

/** Dependencies of {@link SharedAnswers}. */
export interface SharedAnswersDeps {
  readonly table: ResourceTable;
  /** A nonce that was not given before. */
  readonly nonce: () => string;
  /** Version of the whole state. */
  readonly version: () => string;
  /** Counts an answer that was encoded, not shared. */
  readonly encoded: () => void;
  readonly nowMs: () => number;
  /** Default {@link MAX_RESPONSE_BYTES}. */
  readonly maxBytes?: number;
}

/** The answers of one type. A kept answer counts only while none of its resources changed. */
export class SharedAnswers {
  readonly #type: string;
  readonly #deps: SharedAnswersDeps;
  readonly #maxBytes: number;
  /** In the order of their last use. */
  readonly #kept = new Set<KeptAnswer>();
  readonly #byFirst = new Map<number, KeptAnswer[]>();
  #keptBytes = 0;

  constructor(type: string, deps: SharedAnswersDeps) {
    this.#type = type;
    this.#deps = deps;
    this.#maxBytes = deps.maxBytes ?? MAX_RESPONSE_BYTES;
  }

  /** Bytes that are kept for other clients. */
  get keptBytes(): number {
    return this.#keptBytes;
  }

  /** Returns the next response for a client, and takes from `owed` what it holds. */
  take(owed: Owed): SharedAnswer {
    const shared = owed.unknown.size === 0 && owed.slots.size > 0;
    const found = shared ? this.#find(owed) : undefined;
    if (found !== undefined) {
      owed.slots.deleteAll(found.slots);
      found.usedAtMs = this.#deps.nowMs();
      this.#kept.delete(found);
      this.#kept.add(found);
      return found;
    }
    const made = this.#make(owed);
    if (shared) this.#keep(made);
    return made;
  }

  /** Drops the answers with a resource that changed. */
  drop(changed: BitSet): void {
    for (const kept of this.#kept) {
      if (kept.slots.meets(changed)) this.#forget(kept);
    }
  }

  /** Drops the answers that nobody used since `beforeMs`. */
  dropUnused(beforeMs: number): void {
    for (const kept of this.#kept) {
      if (kept.usedAtMs >= beforeMs) return;
      this.#forget(kept);
    }
  }

  /** A kept answer that holds the first owed resources, and nothing that is not owed. */
  #find({ slots, withAliases }: Owed): KeptAnswer | undefined {
    const first = slots.next(0);
    return this.#byFirst
      .get(first)
      ?.find(
        (kept) =>
          kept.withAliases === withAliases &&
          kept.isLast === (kept.slots.size === slots.size) &&
          kept.slots.sameWithin(slots, first, kept.last),
      );
  }

  #make(owed: Owed): KeptAnswer {
    const { table, nonce, version, encoded, nowMs } = this.#deps;
    const removed = this.#takeUnknown(owed.unknown);
    const slots = this.#choose(owed.slots, sizeOf(removed));
    owed.slots.deleteAll(slots);
    const resources: ServedResource[] = [];
    let last = -1;
    for (const slot of slots) {
      last = slot;
      const resource = table.at(slot);
      if (resource === null) removed.push(table.nameAt(slot));
      else resources.push(resource);
    }
    const isLast = owed.slots.size === 0 && owed.unknown.size === 0;
    const id = nonce();
    const bytes = encodeResponse({
      typeUrl: this.#type,
      nonce: id,
      systemVersion: isLast ? version() : `${version()}+more`,
      resources,
      removed,
      withAliases: owed.withAliases,
    });
    encoded();
    return {
      bytes,
      nonce: id,
      resources: resources.length,
      isLast,
      slots,
      first: slots.next(0),
      last,
      withAliases: owed.withAliases,
      usedAtMs: nowMs(),
    };
  }

  /** Unknown names for one response. A name that has become known is owed in another way. */
  #takeUnknown(unknown: Set<string>): string[] {
    const names: string[] = [];
    let bytes = 0;
    for (const name of unknown) {
      if (bytes > this.#maxBytes) break;
      unknown.delete(name);
      if (this.#deps.table.slotOf(name) !== -1) continue;
      names.push(name);
      bytes += name.length;
    }
    return names;
  }

  /** The owed slots that fit in one response. */
  #choose(owed: BitSet, alreadyBytes: number): BitSet {
    const chosen = new BitSet();
    let bytes = alreadyBytes;
    let page = -1;
    for (const slot of owed) {
      const own = Math.floor(slot / PAGE_SLOTS);
      const needed = own === page ? this.#sizeAt(slot) : this.#sizeOfPage(owed, slot);
      if (bytes > 0 && bytes + needed > this.#maxBytes) break;
      page = own;
      bytes += this.#sizeAt(slot);
      chosen.add(slot);
    }
    return chosen;
  }

  #sizeOfPage(owed: BitSet, from: number): number {
    const end = (Math.floor(from / PAGE_SLOTS) + 1) * PAGE_SLOTS;
    let bytes = 0;
    for (let slot = from; slot !== -1 && slot < end; slot = owed.next(slot + 1)) {
      bytes += this.#sizeAt(slot);
    }
    return bytes;
  }

  #sizeAt(slot: number): number {
    const resource = this.#deps.table.at(slot);
    return RESOURCE_OVERHEAD_BYTES + (resource === null ? 0 : resource.bytes.length);
  }

  #keep(answer: KeptAnswer): void {
    const variants = this.#byFirst.get(answer.first) ?? [];
    this.#byFirst.set(answer.first, [...variants, answer]);
    this.#kept.add(answer);
    this.#keptBytes += answer.bytes.length;
    const [oldest] = variants;
    if (variants.length >= MAX_VARIANTS && oldest !== undefined) this.#forget(oldest);
    for (const kept of this.#kept) {
      if (this.#keptBytes <= MAX_KEPT_BYTES && this.#kept.size <= MAX_KEPT_ANSWERS) break;
      this.#forget(kept);
    }
  }

  #forget(answer: KeptAnswer): void {
    if (!this.#kept.delete(answer)) return;
    this.#keptBytes -= answer.bytes.length;
    const left = (this.#byFirst.get(answer.first) ?? []).filter((kept) => kept !== answer);
    if (left.length === 0) this.#byFirst.delete(answer.first);
    else this.#byFirst.set(answer.first, left);
  }
}

function sizeOf(names: readonly string[]): number {
  return names.reduce((sum, name) => sum + name.length, 0);
}
