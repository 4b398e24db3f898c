/** The requests of a client's stream: subscriptions, ACKs and NACKs (docs/spec/control.md §2.3). Pure. */
import type { DeltaRequest } from './wire.ts';
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

/** Resource types in the order in which every stream requests them. */
export const RESOURCE_TYPES: readonly ResourceType[] = [ADDRESS_TYPE, AUTHORIZATION_TYPE];

/** True for a type that this client subscribes to. */
export function isResourceType(typeUrl: string): typeUrl is ResourceType {
  return RESOURCE_TYPES.some((type) => type === typeUrl);
}

/** The wildcard subscriptions of one stream. */
export class Subscriptions {
  readonly #answered = new Set<ResourceType>();

  /** The first requests. They name no resource, which is a wildcard, and list the versions that are held already. */
  initialRequests(
    node: XdsNodeOptions,
    held: (type: ResourceType) => ReadonlyMap<string, string>,
  ): readonly DeltaRequest[] {
    return RESOURCE_TYPES.map((typeUrl) => ({
      typeUrl,
      node: nodeMessage(node),
      initialVersions: Object.fromEntries(held(typeUrl)),
    }));
  }

  /** The ACK of a response, or the NACK that names every refused resource. */
  answer(
    response: { readonly typeUrl: string; readonly nonce: string },
    failures: readonly ResourceFailure[],
  ): DeltaRequest {
    const { typeUrl, nonce } = response;
    if (isResourceType(typeUrl)) this.#answered.add(typeUrl);
    const error = nackMessage(failures);
    return error === null ? { typeUrl, nonce } : { typeUrl, nonce, error };
  }

  /**
   * True once a response of every type was answered on this stream. A NACK counts too, because the good resources of its
   * response are held (docs/decisions/one-bad-resource.md).
   */
  get complete(): boolean {
    return RESOURCE_TYPES.every((type) => this.#answered.has(type));
  }
}

/** `<name>: <reason>` of each failure, joined; null without a failure, which is an ACK. */
export function nackMessage(failures: readonly ResourceFailure[]): string | null {
  if (failures.length === 0) return null;
  const text = failures.map(({ name, reason }) => `${name}: ${reason}`).join('; ');
  return text.length <= NACK_CHARS_MAX ? text : `${text.slice(0, NACK_CHARS_MAX)}…`;
}
