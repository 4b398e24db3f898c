/** One client's subscription to one resource type, and what it is still owed. No I/O. */
import type { Steps } from '../async/shared-slices.ts';
import { BitSet } from '../collections/bit-set.ts';
import { MeshError } from '../errors/mesh-error.ts';
import type { AffectedKeys } from './key-index.ts';
import type { ResourceTable } from './resource-table.ts';
import type { SharedAnswer, SharedAnswers } from './shared-answers.ts';
import type { ServerRequest } from './wire.ts';

/** Names a client may subscribe to one by one; a node's own workloads and their peers stay far below. */
const MAX_SUBSCRIBED_KEYS = 50_000;
/** Names without a resource that a client may list: twice the objects of a control plane, which is an old state of it. */
const MAX_UNKNOWN_NAMES = 400_000;
/** Versions, and keys, that are looked at in one step: tens of microseconds, and a few hundred for keys of services. */
const VERSIONS_PER_STEP = 256;
const KEYS_PER_STEP = 32;

/** A request's answer to the previous response. */
export type Acknowledgement = 'ack' | 'nack' | 'stale' | 'none';

/** State of a subscription for the admin endpoints. */
export interface SubscriptionView {
  readonly wildcard: boolean;
  readonly keys: number;
  readonly owed: number;
  readonly outstanding: boolean;
  readonly acks: number;
  readonly nacks: number;
  readonly lastNack: string | null;
  /** Nonces of the last response and of the last one that the client answered. */
  readonly sentNonce: string;
  readonly answeredNonce: string;
}

const WILDCARD = '*';

/** The resources of one type, and their encoded answers. */
export interface SubscribedType {
  readonly table: ResourceTable;
  readonly answers: SharedAnswers;
}

/** One subscription. At most one response is unacknowledged; meanwhile changes wait as names, not as content. */
export class TypeSubscription {
  readonly #table: ResourceTable;
  readonly #answers: SharedAnswers;
  readonly #node: string;
  #started = false;
  #wildcard = false;
  #answerOwed = false;
  /** The keys of a client without a wildcard. */
  readonly #keys = new Set<string>();
  /** The resources that the keys and the client's node stood for; the client is told of their changes. */
  #held = new BitSet();
  /** Resources to send, or to report as removed. */
  readonly #owed = new BitSet();
  /** Names without a resource, to be reported as removed. */
  readonly #unknown = new Set<string>();
  #inParts = false;
  #outstandingSinceMs: number | null = null;
  #sentNonce = '';
  #answeredNonce = '';
  #acks = 0;
  #nacks = 0;
  #lastNack: string | null = null;

  constructor({ table, answers }: SubscribedType, node: string) {
    this.#table = table;
    this.#answers = answers;
    this.#node = node;
  }

  /** True when the client gets everything. */
  get wildcard(): boolean {
    return this.#wildcard;
  }

  /** True while the last response held only a part of what is owed. */
  get inParts(): boolean {
    return this.#inParts;
  }

  /** True when the client has to be sent something. */
  get isOwed(): boolean {
    return this.#answerOwed || this.#owed.size > 0 || this.#unknown.size > 0;
  }

  /** True when {@link next} may send it. */
  get sendable(): boolean {
    return this.#outstandingSinceMs === null && this.isOwed;
  }

  /** When the response was made that the client has not answered; null without one. */
  get outstandingSinceMs(): number | null {
    return this.#outstandingSinceMs;
  }

  /** The removed names whose slots this client still needs are among these. */
  get slots(): readonly BitSet[] {
    return [this.#owed, this.#held];
  }

  get view(): SubscriptionView {
    return {
      wildcard: this.#wildcard,
      keys: this.#keys.size,
      owed: this.#owed.size + this.#unknown.size,
      outstanding: this.#outstandingSinceMs !== null,
      acks: this.#acks,
      nacks: this.#nacks,
      lastNack: this.#lastNack,
      sentNonce: this.#sentNonce,
      answeredNonce: this.#answeredNonce,
    };
  }

  /**
   * Applies a request in steps. Nothing may be sent between them. Throws XDS_STREAM beyond {@link MAX_SUBSCRIBED_KEYS}
   * or {@link MAX_UNKNOWN_NAMES}.
   */
  *take(request: ServerRequest): Steps<Acknowledgement> {
    const acknowledgement = this.#acknowledge(request);
    const first = !this.#started;
    this.#started = true;
    const { subscribe, unsubscribe } = request;
    const wantsAll = subscribe.includes(WILDCARD) || (first && subscribe.length === 0);
    if (this.#wildcard && unsubscribe.includes(WILDCARD)) {
      this.#wildcard = false;
      this.#owed.clear();
    }
    if (unsubscribe.length > 0) this.#unsubscribe(unsubscribe);
    if (wantsAll && !unsubscribe.includes(WILDCARD)) {
      yield* this.#oweEverything(request.initialVersions);
    } else if (first || subscribe.length > 0) {
      yield* this.#subscribe(request, first);
    }
    return acknowledgement;
  }

  /** Notes that resources changed or were removed, and that some keys may stand for other resources. */
  note(changed: BitSet, affected: AffectedKeys | null): void {
    if (!this.#started) return;
    if (this.#wildcard) {
      this.#owed.addAll(changed);
      return;
    }
    this.#owed.addCommon(this.#held, changed);
    this.#held.deleteAll(this.#table.gone);
    if (affected === null) return;
    for (const key of affected.among(this.#keys)) this.#hold(this.#table.resolve(key));
    if (affected.nodes.has(this.#node)) this.#hold(this.#table.ofNode(this.#node));
  }

  /** The next response; null when nothing is owed or a response is still unacknowledged. */
  next(nowMs: number): SharedAnswer | null {
    if (!this.sendable) return null;
    const answer = this.#answers.take({
      slots: this.#owed,
      unknown: this.#unknown,
      withAliases: !this.#wildcard,
    });
    this.#inParts = !answer.isLast;
    this.#answerOwed = false;
    this.#outstandingSinceMs = nowMs;
    this.#sentNonce = answer.nonce;
    return answer;
  }

  #acknowledge({ nonce, error }: ServerRequest): Acknowledgement {
    if (nonce === '') return 'none';
    if (nonce !== this.#sentNonce) return 'stale';
    this.#outstandingSinceMs = null;
    this.#answeredNonce = nonce;
    if (error === null) {
      this.#acks += 1;
      return 'ack';
    }
    this.#nacks += 1;
    this.#lastNack = error;
    return 'nack';
  }

  /** Owes every resource that the client lacks or holds in another version, and every removed one that it holds. */
  *#oweEverything(versions: ServerRequest['initialVersions']): Steps {
    this.#wildcard = true;
    this.#answerOwed = true;
    this.#keys.clear();
    this.#unknown.clear();
    this.#held.clear();
    this.#owed.clear();
    this.#owed.addAll(this.#table.live);
    let looked = 0;
    for (const [name, version] of versions) {
      const slot = this.#table.slotOf(name);
      if (slot === -1) this.#oweUnknown(name);
      else if (this.#table.at(slot)?.version === version) this.#owed.delete(slot);
      looked += 1;
      if (looked % VERSIONS_PER_STEP === 0) yield;
    }
  }

  /** A key without resources is answered as removed; a repeated key is sent again. */
  *#subscribe(request: ServerRequest, first: boolean): Steps {
    this.#answerOwed = true;
    const versions = new Map<string, string>();
    for (const [name, version] of first ? request.initialVersions : []) {
      versions.set(name, version);
      if (versions.size > MAX_SUBSCRIBED_KEYS) throw tooManyKeys();
      if (versions.size % VERSIONS_PER_STEP === 0) yield;
    }
    // A client that resumes has subscribed to the names it holds.
    const keys = [...request.subscribe, ...versions.keys()].filter((key) => key !== WILDCARD);
    if (!this.#wildcard && first) this.#holdUnlessKnown(this.#table.ofNode(this.#node), versions);
    for (const [position, key] of keys.entries()) {
      if (!this.#wildcard) this.#keys.add(key);
      if (this.#keys.size > MAX_SUBSCRIBED_KEYS) throw tooManyKeys();
      const slots = this.#table.resolve(key);
      if (slots.length === 0) this.#oweUnknown(key);
      this.#holdUnlessKnown(slots, versions);
      if (position % KEYS_PER_STEP === KEYS_PER_STEP - 1) yield;
    }
  }

  /** Forgets keys, and the resources that only they stood for. */
  #unsubscribe(keys: readonly string[]): void {
    for (const key of keys) {
      this.#keys.delete(key);
      this.#unknown.delete(key);
    }
    if (this.#wildcard) return;
    const held = new BitSet();
    for (const slot of this.#table.ofNode(this.#node)) held.add(slot);
    for (const key of this.#keys) for (const slot of this.#table.resolve(key)) held.add(slot);
    const dropped = new BitSet();
    dropped.addAll(this.#held);
    dropped.deleteAll(held);
    this.#owed.deleteAll(dropped);
    this.#held = held;
  }

  #oweUnknown(name: string): void {
    this.#unknown.add(name);
    if (this.#unknown.size > MAX_UNKNOWN_NAMES) {
      throw new MeshError('XDS_STREAM', `more than ${MAX_UNKNOWN_NAMES} names without a resource`);
    }
  }

  /** Holds resources, and owes those that the client lacks or holds in another version. */
  #holdUnlessKnown(slots: Iterable<number>, versions: ReadonlyMap<string, string>): void {
    for (const slot of slots) {
      const resource = this.#table.at(slot);
      if (resource === null || versions.get(resource.name) !== resource.version) {
        this.#owed.add(slot);
      }
      if (!this.#wildcard) this.#held.add(slot);
    }
  }

  /** Holds resources, and owes those that were not held. */
  #hold(slots: Iterable<number>): void {
    for (const slot of slots) {
      if (this.#held.add(slot)) this.#owed.add(slot);
    }
  }
}

function tooManyKeys(): MeshError {
  return new MeshError('XDS_STREAM', `more than ${MAX_SUBSCRIBED_KEYS} names of one type`);
}
