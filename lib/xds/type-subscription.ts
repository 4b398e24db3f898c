/** One client's subscription to one resource type, and the names it is still owed. No I/O. */
import { MeshError } from '../errors/mesh-error.ts';
import type { ServedResource, ServerRequest } from './wire.ts';

/** Names a client may subscribe to one by one; a node's own workloads and their peers stay far below. */
const MAX_SUBSCRIBED_KEYS = 50_000;
/** Largest response: upstream clients accept 200 MiB. A larger answer goes in several responses. */
export const MAX_RESPONSE_BYTES = 100 * 1024 * 1024;

/** The resources that a server serves. */
export interface ResourceSource {
  get(type: string, name: string): ServedResource | undefined;
  /** Every name of the type. */
  names(type: string): Iterable<string>;
  /** The names a key stands for. A key is a resource's own name, an address, or a service, which brings its workloads. */
  resolve(type: string, key: string): readonly string[];
  /** The names that every client of this node gets in addition to its keys. */
  ofNode(type: string, node: string): readonly string[];
}

/** The content of the next response. */
export interface Answer {
  readonly resources: readonly ServedResource[];
  readonly removed: readonly string[];
}

/** A request's answer to the previous response. */
export type Acknowledgement = 'ack' | 'nack' | 'stale' | 'none';

const WILDCARD = '*';
/** Bytes of a resource's name, version and framing. */
const RESOURCE_OVERHEAD_BYTES = 128;

/** One subscription. At most one response is unacknowledged; meanwhile changes wait as names, not as content. */
export class TypeSubscription {
  readonly type: string;
  readonly #source: ResourceSource;
  readonly #node: string;
  readonly #maxBytes: number;
  #started = false;
  #wildcard = false;
  #answerOwed = false;
  /** The keys of a client without a wildcard. */
  readonly #keys = new Set<string>();
  /** The resource names that the keys and the client's node stand for. */
  #names = new Set<string>();
  /** Names to send, or to report as removed when no resource has the name. */
  readonly #owed = new Set<string>();
  #inParts = false;
  #outstanding: string | null = null;
  #lastNonce = '';
  #acks = 0;
  #nacks = 0;
  #lastNack: string | null = null;

  constructor(
    type: string,
    source: ResourceSource,
    node: string,
    maxBytes: number = MAX_RESPONSE_BYTES,
  ) {
    this.type = type;
    this.#maxBytes = maxBytes;
    this.#source = source;
    this.#node = node;
  }

  /** True when the client gets everything. */
  get wildcard(): boolean {
    return this.#wildcard;
  }

  /** Names the client is still owed. */
  get owed(): number {
    return this.#owed.size;
  }

  /** True while the last answer held only a part of the owed names, because all of them were too large. */
  get inParts(): boolean {
    return this.#inParts;
  }

  /** State of the subscription for the admin endpoint. */
  get view(): {
    wildcard: boolean;
    keys: number;
    owed: number;
    outstanding: boolean;
    acks: number;
    nacks: number;
    lastNack: string | null;
  } {
    return {
      wildcard: this.#wildcard,
      keys: this.#keys.size,
      owed: this.#owed.size,
      outstanding: this.#outstanding !== null,
      acks: this.#acks,
      nacks: this.#nacks,
      lastNack: this.#lastNack,
    };
  }

  /** Applies a request. Throws XDS_STREAM beyond {@link MAX_SUBSCRIBED_KEYS}. */
  take(request: ServerRequest): Acknowledgement {
    const acknowledgement = this.#acknowledge(request);
    const first = !this.#started;
    this.#started = true;
    const wantsAll =
      request.subscribe.includes(WILDCARD) || (first && request.subscribe.length === 0);
    const became = wantsAll && !request.unsubscribe.includes(WILDCARD);
    if (request.unsubscribe.includes(WILDCARD)) this.#wildcard = false;
    for (const key of request.unsubscribe) this.#keys.delete(key);
    if (became) this.#oweEverything(request.initialVersions);
    else if (first || request.subscribe.length > 0) this.#subscribe(request, first);
    return acknowledgement;
  }

  /** Notes that resources changed or were removed. */
  note(changed: ReadonlySet<string>): void {
    if (!this.#started) return;
    if (this.#wildcard) {
      for (const name of changed) this.#owed.add(name);
      return;
    }
    const before = this.#names;
    this.#names = this.#resolveAll();
    for (const name of this.#names) {
      if (changed.has(name) || !before.has(name)) this.#owed.add(name);
    }
    for (const name of before) {
      if (changed.has(name) && !this.#names.has(name)) this.#owed.add(name);
    }
  }

  /** The next answer, sent with `nonce`; null when nothing is owed or an answer is still unacknowledged. */
  next(nonce: string): Answer | null {
    if (this.#outstanding !== null || (this.#owed.size === 0 && !this.#answerOwed)) return null;
    const resources: ServedResource[] = [];
    const removed: string[] = [];
    let bytes = 0;
    for (const name of this.#owed) {
      if (bytes > this.#maxBytes) break;
      this.#owed.delete(name);
      const resource = this.#source.get(this.type, name);
      if (resource === undefined) removed.push(name);
      else {
        resources.push(resource);
        bytes += resource.bytes.length + RESOURCE_OVERHEAD_BYTES;
      }
    }
    this.#inParts = this.#owed.size > 0;
    this.#answerOwed = false;
    this.#outstanding = nonce;
    this.#lastNonce = nonce;
    return { resources, removed };
  }

  #acknowledge(request: ServerRequest): Acknowledgement {
    if (request.nonce === '') return 'none';
    if (request.nonce !== this.#lastNonce) return 'stale';
    this.#outstanding = null;
    if (request.error === null) {
      this.#acks += 1;
      return 'ack';
    }
    this.#nacks += 1;
    this.#lastNack = request.error;
    return 'nack';
  }

  /** Owes every resource that the client lacks or holds in another version, and every removed one that it holds. */
  #oweEverything(held: ReadonlyMap<string, string>): void {
    this.#wildcard = true;
    this.#answerOwed = true;
    this.#keys.clear();
    this.#names.clear();
    this.#owed.clear();
    for (const name of this.#source.names(this.type)) {
      if (this.#differs(name, held)) this.#owed.add(name);
    }
    for (const name of held.keys()) {
      if (this.#source.get(this.type, name) === undefined) this.#owed.add(name);
    }
  }

  #subscribe(request: ServerRequest, first: boolean): void {
    this.#answerOwed = true;
    const asked = request.subscribe.filter((key) => key !== WILDCARD);
    // A client that resumes has subscribed to the names it holds.
    const keys = first ? [...asked, ...request.initialVersions.keys()] : asked;
    for (const key of keys) this.#keys.add(key);
    if (this.#keys.size > MAX_SUBSCRIBED_KEYS) {
      throw new MeshError('XDS_STREAM', `more than ${MAX_SUBSCRIBED_KEYS} names of one type`);
    }
    if (this.#wildcard) {
      for (const key of keys) this.#owe(key, request);
      return;
    }
    const before = this.#names;
    for (const key of keys) this.#owe(key, request);
    this.#names = this.#resolveAll();
    for (const name of this.#names) {
      if (!before.has(name) && this.#differs(name, request.initialVersions)) this.#owed.add(name);
    }
  }

  /** A key without resources is answered as removed; a repeated key is sent again. */
  #owe(key: string, request: ServerRequest): void {
    const names = this.#source.resolve(this.type, key);
    if (names.length === 0) this.#owed.add(key);
    for (const name of names) {
      if (this.#differs(name, request.initialVersions)) this.#owed.add(name);
    }
  }

  #differs(name: string, held: ReadonlyMap<string, string>): boolean {
    return held.get(name) !== this.#source.get(this.type, name)?.version;
  }

  #resolveAll(): Set<string> {
    const names = new Set(this.#source.ofNode(this.type, this.#node));
    for (const key of this.#keys) {
      for (const name of this.#source.resolve(this.type, key)) names.add(name);
    }
    return names;
  }
}
