/** Delta discovery on the wire as the server sees it; protobufjs messages do not leave this file. */
import { envoy } from '#proto/weft.js';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/** The node of a first request; metadata reduced to its texts. */
export interface RequestNode {
  readonly id: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A request as it came. */
export interface ServerRequest {
  readonly node: RequestNode | null;
  readonly typeUrl: string;
  readonly subscribe: readonly string[];
  readonly unsubscribe: readonly string[];
  readonly initialVersions: ReadonlyMap<string, string>;
  /** Empty when the request answers no response. */
  readonly nonce: string;
  /** The reason of a NACK; null otherwise. */
  readonly error: string | null;
}

/** A resource to send. */
export interface ServedResource {
  readonly name: string;
  readonly version: string;
  readonly bytes: Uint8Array;
  readonly aliases: readonly string[];
}

/** A response to send. */
export interface ServerResponse {
  readonly typeUrl: string;
  readonly nonce: string;
  readonly systemVersion: string;
  readonly resources: readonly ServedResource[];
  readonly removed: readonly string[];
  /** Aliases are for clients that ask by them. */
  readonly withAliases: boolean;
}

const { DeltaDiscoveryRequest, DeltaDiscoveryResponse } = envoy.service.discovery.v3;

/** Reads a request. Throws XDS_STREAM: a message that cannot be read ends the stream. */
export function decodeRequest(bytes: Uint8Array): ServerRequest {
  try {
    const message = DeltaDiscoveryRequest.decode(bytes);
    const texts = Object.entries(message.node?.metadata?.fields ?? {}).flatMap(([key, value]) =>
      typeof value.stringValue === 'string' ? [[key, value.stringValue] as const] : [],
    );
    return {
      node: message.node
        ? { id: message.node.id ?? '', metadata: Object.fromEntries(texts) }
        : null,
      typeUrl: message.typeUrl,
      subscribe: message.resourceNamesSubscribe,
      unsubscribe: message.resourceNamesUnsubscribe,
      initialVersions: new Map(Object.entries(message.initialResourceVersions)),
      nonce: message.responseNonce,
      error: message.errorDetail ? (message.errorDetail.message ?? '') : null,
    };
  } catch (error) {
    throw new MeshError('XDS_STREAM', `not a DeltaDiscoveryRequest: ${errorText(error)}`, {
      cause: error,
    });
  }
}

/** The bytes of a response. */
export function encodeResponse(response: ServerResponse): Buffer {
  const { typeUrl, nonce, systemVersion, removed, withAliases } = response;
  const bytes = DeltaDiscoveryResponse.encode({
    systemVersionInfo: systemVersion,
    typeUrl,
    nonce,
    removedResources: [...removed],
    resources: response.resources.map((resource) => ({
      name: resource.name,
      version: resource.version,
      resource: { type_url: typeUrl, value: resource.bytes },
      ...(withAliases ? { aliases: [...resource.aliases] } : {}),
    })),
  }).finish();
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
