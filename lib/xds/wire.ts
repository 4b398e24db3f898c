/** Requests and responses of delta discovery on the wire; protobufjs messages do not leave this file and node.ts. */
import { envoy } from '#proto/weft.js';
import { MeshError, errorText } from '../errors/mesh-error.ts';

/** A request as the client thinks of it. */
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

/** A response. The bytes are views into one message: copy what is kept. */
export interface DeltaResponse {
  readonly typeUrl: string;
  readonly nonce: string;
  readonly resources: readonly DeltaResource[];
  readonly removed: readonly string[];
}

const { DeltaDiscoveryRequest, DeltaDiscoveryResponse } = envoy.service.discovery.v3;

/** Serializer for gRPC. */
export function encodeRequest(request: DeltaRequest): Buffer {
  const bytes = DeltaDiscoveryRequest.encode({
    typeUrl: request.typeUrl,
    ...(request.node === undefined ? {} : { node: request.node }),
    ...(request.initialVersions === undefined
      ? {}
      : { initialResourceVersions: request.initialVersions }),
    ...(request.nonce === undefined ? {} : { responseNonce: request.nonce }),
    ...(request.error === undefined ? {} : { errorDetail: { message: request.error } }),
  }).finish();
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Deserializer for gRPC. Throws XDS_STREAM: a message that cannot be read ends the stream. */
export function decodeResponse(bytes: Buffer): DeltaResponse {
  try {
    const message = DeltaDiscoveryResponse.decode(bytes);
    return {
      typeUrl: message.typeUrl,
      nonce: message.nonce,
      resources: message.resources.map(({ name, version, resource }) => ({
        name: name ?? '',
        version: version ?? '',
        bytes: resource?.value ?? (resource ? new Uint8Array() : null),
      })),
      removed: message.removedResources,
    };
  } catch (error) {
    throw new MeshError('XDS_STREAM', `not a DeltaDiscoveryResponse: ${errorText(error)}`, {
      cause: error,
    });
  }
}
