/** The requests of a client's stream: subscriptions, ACKs and NACKs (docs/spec/control.md §2.3). Pure. */
import type { DeltaRequest, DeltaResponse } from './wire.ts';
import { nodeMessage } from './node.ts';
import type { XdsNodeOptions } from './node.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from './type-urls.ts';
import type { ResourceType } from './type-urls.ts';

/** A resource that was refused. */
export interface ResourceFailure {
  readonly name: string;
  readonly reason: string;
}

/** Longest NACK text sent: gRPC servers cap the size of log texts, and istiod repeats the text in its log. */
const NACK_CHARS_MAX = 16_384;

/**
 * Largest `initial_resource_versions` that a request carries: istiod reads no message of more than 4 MiB, and ends the stream
 * with an error that the next stream would meet again. The rest of the message needs the difference.
 */
export const INITIAL_VERSIONS_BYTES_MAX = 4 * 1024 * 1024 - 256 * 1024;

/** Upper bound of the framing of one entry of a map of texts: two tags and two lengths in one, and its own tag and length. */
const ENTRY_OVERHEAD_BYTES = 12;

/** Resource types in the order in which every stream requests them. */
export const RESOURCE_TYPES: readonly ResourceType[] = [ADDRESS_TYPE, AUTHORIZATION_TYPE];

/** True for a type that this client subscribes to. */
export function isResourceType(typeUrl: string): typeUrl is ResourceType {
  return RESOURCE_TYPES.some((type) => type === typeUrl);
}

/** The changes of a response that are applied together. */
export type ResourceChanges = Pick<DeltaResponse, 'resources' | 'removed'> & {
  /** True for the end of the first answer on a stream: what is held and not removed by then, the server has as it is held. */
  readonly initial: boolean;
  /** False while the answer goes on in another response. */
  readonly whole: boolean;
};

/** Names to subscribe to, and to unsubscribe from. */
export interface NameChanges {
  readonly subscribe: readonly string[];
  readonly unsubscribe: readonly string[];
}

/** The Address resources that a client on demand asks for by name. */
export interface DemandedNames {
  /** A stream opens: everything is asked for anew, and so are `held` resources whose versions the server is not told. */
  reopened(held: Iterable<string>): void;
  /** Returns the next changes, at most `maxBytes` of names; null when there are none. They count as asked for. */
  next(maxBytes: number): NameChanges | null;
}

/** The wildcard. A request that subscribes and unsubscribes it asks for nothing (docs/spec/control.md §2.2). */
const WILDCARD = '*';

/** The subscriptions of one stream: wildcards, or on demand for Address resources. */
export class Subscriptions {
  readonly #demanded: DemandedNames | null;
  readonly #answered = new Set<ResourceType>();
  /** Names held when the stream opened that no request listed; the first whole answer names those that still exist. */
  readonly #unlisted = new Map<ResourceType, Set<string>>();
  /** Names removed by the parts of an answer that has not ended yet. */
  readonly #removed = new Map<ResourceType, Set<string>>();

  /** With `demanded`, Address resources are asked for by name. */
  constructor(demanded: DemandedNames | null = null) {
    this.#demanded = demanded;
  }

  /**
   * The first requests. They name no resource, which is a wildcard, unless names are demanded, and list the versions that are held already. Versions of
   * more than {@link INITIAL_VERSIONS_BYTES_MAX} are left out: the server then sends everything, and {@link changes} adds the
   * removals that it cannot know of.
   */
  initialRequests(
    node: XdsNodeOptions,
    held: (type: ResourceType) => ReadonlyMap<string, string>,
  ): readonly DeltaRequest[] {
    return RESOURCE_TYPES.map((typeUrl) => {
      const versions = held(typeUrl);
      const request = { typeUrl, node: nodeMessage(node) };
      const bytes = versionBytes(versions);
      const fits = bytes <= INITIAL_VERSIONS_BYTES_MAX;
      const listed = fits ? { initialVersions: Object.fromEntries(versions) } : {};
      if (typeUrl === ADDRESS_TYPE && this.#demanded !== null) {
        this.#demanded.reopened(fits ? [] : versions.keys());
        const room = INITIAL_VERSIONS_BYTES_MAX - (fits ? bytes : 0);
        const subscribe = this.#demanded.next(room)?.subscribe ?? [];
        const names = { subscribe: [WILDCARD, ...subscribe], unsubscribe: [WILDCARD] };
        return { ...request, ...listed, ...names };
      }
      if (fits) return { ...request, ...listed };
      this.#unlisted.set(typeUrl, new Set(versions.keys()));
      return request;
    });
  }

  /**
   * The changes to apply for a response. Removals of an answer in several parts come with its last part, so that they are
   * judged as one; so do the held names that the first whole answer did not repeat, if the server was not told of them.
   */
  changes(type: ResourceType, response: DeltaResponse): ResourceChanges {
    const { more, resources } = response;
    const removed = this.#removed.get(type) ?? new Set();
    const unlisted = this.#unlisted.get(type);
    for (const { name } of resources) {
      removed.delete(name);
      unlisted?.delete(name);
    }
    for (const name of response.removed) removed.add(name);
    if (more) {
      this.#removed.set(type, removed);
      return { resources, removed: [], initial: false, whole: false };
    }
    this.#removed.delete(type);
    this.#unlisted.delete(type);
    const initial = !this.#answered.has(type);
    const gone = [...new Set([...removed, ...(unlisted ?? [])])];
    return { resources, removed: gone, initial, whole: true };
  }

  /** The ACK of a response, or the NACK that names every refused resource. */
  answer(
    response: Pick<DeltaResponse, 'typeUrl' | 'nonce' | 'more'>,
    failures: readonly ResourceFailure[],
  ): DeltaRequest {
    const { typeUrl, nonce, more } = response;
    if (isResourceType(typeUrl) && !more) this.#answered.add(typeUrl);
    const error = nackMessage(failures);
    return error === null ? { typeUrl, nonce } : { typeUrl, nonce, error };
  }

  /**
   * True once an answer of every type was taken to its end on this stream; names on demand need none. A NACK counts too, because the good resources of its
   * response are held (docs/decisions/one-bad-resource.md).
   */
  get complete(): boolean {
    return RESOURCE_TYPES.every(
      (type) => this.#answered.has(type) || (type === ADDRESS_TYPE && this.#demanded !== null),
    );
  }
}

/** Bytes of the versions in a request, at most; counting ends beyond the limit. */
function versionBytes(versions: ReadonlyMap<string, string>): number {
  let bytes = 0;
  for (const [name, version] of versions) {
    bytes += Buffer.byteLength(name) + Buffer.byteLength(version) + ENTRY_OVERHEAD_BYTES;
    if (bytes > INITIAL_VERSIONS_BYTES_MAX) break;
  }
  return bytes;
}

/** `<name>: <reason>` of each failure, joined; null without a failure, which is an ACK. */
export function nackMessage(failures: readonly ResourceFailure[]): string | null {
  if (failures.length === 0) return null;
  const text = failures.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  return text.length <= NACK_CHARS_MAX ? text : `${text.slice(0, NACK_CHARS_MAX)}…`;
}
