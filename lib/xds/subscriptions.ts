/** What one stream asked for and got, by resource type. Pure. */
import type { DeltaRequest } from './wire.ts';
import { nackMessage } from './nack.ts';
import type { ResourceFailure } from './nack.ts';
import { nodeMessage } from './node.ts';
import type { XdsNodeOptions } from './node.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from './type-urls.ts';
import type { ResourceType } from './type-urls.ts';

/** Asked for in this order on every stream. */
export const RESOURCE_TYPES: readonly ResourceType[] = [ADDRESS_TYPE, AUTHORIZATION_TYPE];

/** Whether the type is one this client subscribes to. */
export function isResourceType(typeUrl: string): typeUrl is ResourceType {
  return RESOURCE_TYPES.some((type) => type === typeUrl);
}

/** The wildcard subscriptions of one stream. */
export class Subscriptions {
  readonly #answered = new Set<ResourceType>();

  /** The first requests: no names, which is a wildcard, and what is held already, which need not be sent again. */
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

  /** The ACK, or the NACK that names every refused resource, of a response. */
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
   * True once a response of every type was answered on this stream: what is good of it is held. A NACK counts, too
   * (docs/decisions/one-bad-resource.md).
   */
  get complete(): boolean {
    return RESOURCE_TYPES.every((type) => this.#answered.has(type));
  }
}
