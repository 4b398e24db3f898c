/** Requests and responses of delta discovery on the wire; protobufjs messages do not leave this file and node.ts. */
import { Reader } from 'protobufjs/minimal.js';
import { envoy } from '#proto/discovery.js';
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
  readonly subscribe?: readonly string[];
  readonly unsubscribe?: readonly string[];
  readonly nonce?: string;
  /** Makes the request a NACK. */
  readonly error?: string;
}

/** One resource of a response; `bytes` is null when the server sent no payload. */
export interface DeltaResource {
  readonly name: string;
  readonly version: string;
  readonly bytes: Uint8Array | null;
  /** Other names by which a client on demand may have asked for it. */
  readonly aliases?: readonly string[];
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
  /** Names and versions that the client holds. They are read from the request as they are asked for, because they may be many. */
  readonly initialVersions: Iterable<readonly [name: string, version: string]>;
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
  /** Other names: `network/ip`, or `network/ip/length` for a range. */
  readonly aliases: readonly string[];
  /** A workload's node; empty for other resources. */
  readonly node: string;
  /** Names of the services that a workload belongs to. */
  readonly services: readonly string[];
  /** A client that asks for a service also gets its workloads. */
  readonly isService: boolean;
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
  const { typeUrl, node, initialVersions, nonce, error, subscribe, unsubscribe } = request;
  return bufferOf(
    DeltaDiscoveryRequest.encode({
      typeUrl,
      ...(node === undefined ? {} : { node }),
      ...(initialVersions === undefined ? {} : { initialResourceVersions: initialVersions }),
      ...(subscribe === undefined ? {} : { resourceNamesSubscribe: [...subscribe] }),
      ...(unsubscribe === undefined ? {} : { resourceNamesUnsubscribe: [...unsubscribe] }),
      ...(nonce === undefined ? {} : { responseNonce: nonce }),
      ...(error === undefined ? {} : { errorDetail: { message: error } }),
    }).finish(),
  );
}

/** Field of a request with one name and its version, and the fields of such an entry. */
const VERSIONS_FIELD = 5;
const ENTRY_NAME_FIELD = 1;
const ENTRY_VERSION_FIELD = 2;

/**
 * Reads a request on the server. Throws XDS_STREAM: a message that cannot be read ends the stream. Reading its versions
 * may throw the same.
 */
export function decodeRequest(bytes: Uint8Array): ServerRequest {
  const { versions, rest } = decoded('DeltaDiscoveryRequest', () => withoutVersions(bytes));
  const message = decoded('DeltaDiscoveryRequest', () => DeltaDiscoveryRequest.decode(rest));
  const texts = Object.entries(message.node?.metadata?.fields ?? {}).flatMap(([key, value]) =>
    typeof value.stringValue === 'string' ? [[key, value.stringValue] as const] : [],
  );
  return {
    node: message.node ? { id: message.node.id ?? '', metadata: Object.fromEntries(texts) } : null,
    typeUrl: message.typeUrl,
    subscribe: message.resourceNamesSubscribe,
    unsubscribe: message.resourceNamesUnsubscribe,
    initialVersions: { [Symbol.iterator]: () => versionEntries(bytes, versions) },
    nonce: message.responseNonce,
    error: message.errorDetail ? (message.errorDetail.message ?? '') : null,
  };
}

/** Cuts the entries of the versions out of a request: a client of a large mesh sends a hundred thousand. */
function withoutVersions(bytes: Uint8Array): { versions: readonly Span[]; rest: Uint8Array } {
  const reader = Reader.create(bytes);
  const versions: Span[] = [];
  const others: Uint8Array[] = [];
  while (reader.pos < reader.len) {
    const start = reader.pos;
    const tag = reader.uint32();
    reader.skipType(tag & 7);
    // The entries follow one another, so that they are a few spans.
    const last = versions.at(-1);
    if (tag >>> 3 !== VERSIONS_FIELD) others.push(bytes.subarray(start, reader.pos));
    else if (last?.end === start) last.end = reader.pos;
    else versions.push({ start, end: reader.pos });
  }
  return { versions, rest: Buffer.concat(others) };
}

interface Span {
  readonly start: number;
  end: number;
}

function* versionEntries(
  bytes: Uint8Array,
  spans: readonly Span[],
): Generator<readonly [string, string]> {
  for (const { start, end } of spans) {
    const reader = Reader.create(bytes.subarray(start, end));
    while (reader.pos < reader.len) {
      yield decoded('DeltaDiscoveryRequest', () => versionEntry(reader));
    }
  }
}

function versionEntry(reader: Reader): readonly [string, string] {
  reader.uint32();
  const end = reader.uint32() + reader.pos;
  let name = '';
  let version = '';
  while (reader.pos < end) {
    const tag = reader.uint32();
    if (tag >>> 3 === ENTRY_NAME_FIELD) name = reader.string();
    else if (tag >>> 3 === ENTRY_VERSION_FIELD) version = reader.string();
    else reader.skipType(tag & 7);
  }
  return [name, version];
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
    resources: message.resources.map(({ name, version, resource, aliases }) => ({
      name: name ?? '',
      version: version ?? '',
      bytes: resource?.value ?? (resource ? new Uint8Array() : null),
      aliases: aliases ?? [],
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
