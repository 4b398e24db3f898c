/** Requests and responses of delta discovery on the wire; protobufjs messages do not leave this file and node.ts. */
import { envoy } from '#proto/weft.js';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/**
 * End of `system_version_info` in every response of an answer but its last. Other clients ignore the field; other servers send
 * each answer in one response.
 */
export const MORE_FOLLOWS = '+more';

/** A request that a client sends. */
export interface DeltaRequest {
  readonly typeUrl: string;
  /** In the first request of a type on a stream only. */
  readonly node?: envoy.config.core.v3.Node.$Properties;
  readonly initialVersions?: Readonly<Record<string, string>>;
  readonly nonce?: string;
  /** Makes the request a NACK. */
  readonly error?: string;
}

/** One resource of a response; `bytes` is null when the server sent no payload. */
export interface DeltaResource {
  readonly name: string;
  readonly version: string;
  readonly bytes: Uint8Array | null;
}

/** A response that a client received. The bytes are views into one message: copy them to keep them. */
export interface DeltaResponse {
  readonly typeUrl: string;
  readonly nonce: string;
  readonly resources: readonly DeltaResource[];
  readonly removed: readonly string[];
  /** True when the answer goes on in another response. */
  readonly more: boolean;
}

/** The node of a first request, with the text values of its metadata. */
export interface RequestNode {
  readonly id: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A request that a server received. */
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
export interface ServedResponse {
  readonly typeUrl: string;
  readonly nonce: string;
  readonly systemVersion: string;
  readonly resources: readonly ServedResource[];
  readonly removed: readonly string[];
  /** Only clients that subscribe by alias need the aliases. */
  readonly withAliases: boolean;
}

const { DeltaDiscoveryRequest, DeltaDiscoveryResponse } = envoy.service.discovery.v3;

/** The client's serializer for gRPC. */
export function encodeRequest(request: DeltaRequest): Buffer {
  const { typeUrl, node, initialVersions, nonce, error } = request;
  return bufferOf(
    DeltaDiscoveryRequest.encode({
      typeUrl,
      ...(node === undefined ? {} : { node }),
      ...(initialVersions === undefined ? {} : { initialResourceVersions: initialVersions }),
      ...(nonce === undefined ? {} : { responseNonce: nonce }),
      ...(error === undefined ? {} : { errorDetail: { message: error } }),
    }).finish(),
  );
}

/** Reads a request on the server. Throws XDS_STREAM: a message that cannot be read ends the stream. */
export function decodeRequest(bytes: Uint8Array): ServerRequest {
  const message = decoded('DeltaDiscoveryRequest', () => DeltaDiscoveryRequest.decode(bytes));
  const texts = Object.entries(message.node?.metadata?.fields ?? {}).flatMap(([key, value]) =>
    typeof value.stringValue === 'string' ? [[key, value.stringValue] as const] : [],
  );
  return {
    node: message.node ? { id: message.node.id ?? '', metadata: Object.fromEntries(texts) } : null,
    typeUrl: message.typeUrl,
    subscribe: message.resourceNamesSubscribe,
    unsubscribe: message.resourceNamesUnsubscribe,
    initialVersions: new Map(Object.entries(message.initialResourceVersions)),
    nonce: message.responseNonce,
    error: message.errorDetail ? (message.errorDetail.message ?? '') : null,
  };
}

/** The bytes of a response, on the server. */
export function encodeResponse(response: ServedResponse): Buffer {
  const { typeUrl, nonce, systemVersion, removed, withAliases } = response;
  return bufferOf(
    DeltaDiscoveryResponse.encode({
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
    }).finish(),
  );
}

/** The client's deserializer for gRPC. Throws XDS_STREAM: a message that cannot be read ends the stream. */
export function decodeResponse(bytes: Buffer): DeltaResponse {
  const message = decoded('DeltaDiscoveryResponse', () => DeltaDiscoveryResponse.decode(bytes));
  return {
    typeUrl: message.typeUrl,
    nonce: message.nonce,
    resources: message.resources.map(({ name, version, resource }) => ({
      name: name ?? '',
      version: version ?? '',
      bytes: resource?.value ?? (resource ? new Uint8Array() : null),
    })),
    removed: message.removedResources,
    more: message.systemVersionInfo.endsWith(MORE_FOLLOWS),
  };
}

function decoded<Message>(name: string, decode: () => Message): Message {
  try {
    return decode();
  } catch (error) {
    throw new MeshError('XDS_STREAM', `not a ${name}: ${errorText(error)}`, { cause: error });
  }
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
