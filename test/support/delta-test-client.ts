/** A delta ADS client over gRPC and TLS that does just what a test tells it. */
import { Metadata } from '@grpc/grpc-js';
import type { ClientDuplexStream, ServiceError } from '@grpc/grpc-js';
import type { ExecutionContext } from 'ava';
import { envoy } from '#proto/discovery.js';
import { openGrpcClient } from '../../lib/grpc/client.ts';
import type { SecureClient } from '../../lib/grpc/client.ts';
import { XDS_MESSAGE_BYTES_MAX } from '../../lib/xds/delta-client.ts';
import { DELTA_METHOD } from '../../lib/xds/type-urls.ts';
import { until } from './until.ts';

const { DeltaDiscoveryRequest, DeltaDiscoveryResponse } = envoy.service.discovery.v3;

type Request = envoy.service.discovery.v3.DeltaDiscoveryRequest.$Properties;
type Response = envoy.service.discovery.v3.DeltaDiscoveryResponse;

/** Where to connect and as whom. */
export interface DeltaTarget {
  readonly address: string;
  readonly rootCa: string;
  readonly token: string | null;
}

/** One stream. */
export interface TestStream {
  readonly responses: Response[];
  /** How the stream ended; null while it is open. */
  readonly ended: () => ServiceError | 'end' | null;
  send(request: Request): void;
  /** Bytes as they are. */
  sendRaw(bytes: Buffer): void;
  /** The first request of a type, with a node. */
  open(type: string, request?: Request, metadata?: Record<string, string>): void;
  /** Waits for the response with this position among those of the type, from 0. */
  response(type: string, position: number): Promise<Response>;
  ack(response: Response): void;
  nack(response: Response, reason: string): void;
  /** Stops and restarts reading. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** The node id of a test client. */
export const TEST_NODE_ID =
  'ztunnel~10.200.0.11~ztunnel-node-1.istio-system~istio-system.svc.cluster.local';

/** Opens a client as nodes have it. Its owner closes it. */
export function openDeltaClient({ address, rootCa, token }: DeltaTarget): SecureClient {
  return openGrpcClient({
    address,
    rootCa,
    altHostname: null,
    authToken: token,
    clusterId: 'Kubernetes',
    headers: {},
    maxReceiveBytes: XDS_MESSAGE_BYTES_MAX,
  });
}

/** Opens a stream, closed with the test. */
export function openTestStream(t: ExecutionContext, target: DeltaTarget): TestStream {
  const client = openDeltaClient(target);
  const raw = (bytes: Buffer): Buffer => bytes;
  const call: ClientDuplexStream<Buffer, Buffer> = client.makeBidiStreamRequest(
    DELTA_METHOD,
    raw,
    raw,
    // A busy machine may fail a connection; the channel then makes another.
    new Metadata({ waitForReady: true }),
  );
  const responses: Response[] = [];
  let ended: ServiceError | 'end' | null = null;
  call.on('data', (bytes: Buffer) => responses.push(DeltaDiscoveryResponse.decode(bytes)));
  call.on('error', (error: ServiceError) => {
    ended ??= error;
  });
  call.on('end', () => {
    setImmediate(() => {
      ended ??= 'end';
    });
  });
  const close = (): void => {
    call.cancel();
    client.close();
  };
  t.teardown(close);
  const stream: TestStream = {
    responses,
    ended: () => ended,
    send: (request) => void call.write(Buffer.from(DeltaDiscoveryRequest.encode(request).finish())),
    sendRaw: (bytes) => void call.write(bytes),
    open: (type, request = {}, metadata = {}) =>
      stream.send({
        typeUrl: type,
        node: {
          id: TEST_NODE_ID,
          metadata: {
            fields: Object.fromEntries(
              Object.entries(metadata).map(([key, value]) => [key, { stringValue: value }]),
            ),
          },
        },
        ...request,
      }),
    response: (type, position) =>
      until(() => responses.filter((response) => response.typeUrl === type)[position], {
        what: `response ${position} of ${type}, stream ended: ${String(ended)}`,
      }),
    ack: (response) => stream.send({ typeUrl: response.typeUrl, responseNonce: response.nonce }),
    nack: (response, reason) =>
      stream.send({
        typeUrl: response.typeUrl,
        responseNonce: response.nonce,
        errorDetail: { message: reason },
      }),
    pause: () => void call.pause(),
    resume: () => void call.resume(),
    close,
  };
  return stream;
}

/** Versions by resource name, as a client that resumes sends them. */
export function versionsOf(response: Response): Record<string, string> {
  return Object.fromEntries(
    response.resources.map((resource) => [resource.name ?? '', resource.version ?? '']),
  );
}

/** Names of the resources of a response, sorted. */
export function namesOf(response: Response): string[] {
  return response.resources.map((resource) => resource.name ?? '').sort();
}
