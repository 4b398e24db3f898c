/** A delta ADS server over gRPC and TLS whose resources, refusals and ends a test decides. */
import { X509Certificate, generateKeyPairSync } from 'node:crypto';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import type { ExecutionContext } from 'ava';
import { envoy } from '#proto/discovery.js';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
} from '../../lib/grpc/server.ts';
import { createRoot, issueLeaf } from '../../lib/identity/x509.ts';
import { DELTA_METHOD } from '../../lib/xds/type-urls.ts';
import { makeScratch } from './leftovers.ts';
import { ownPort } from './ports.ts';

const { DeltaDiscoveryRequest, DeltaDiscoveryResponse } = envoy.service.discovery.v3;

type Request = envoy.service.discovery.v3.DeltaDiscoveryRequest;
type Call = ServerDuplexStream<
  Request,
  envoy.service.discovery.v3.DeltaDiscoveryResponse.$Properties
>;

/** Largest request, as istiod takes it. */
const MAX_REQUEST_BYTES = 4 * 1024 * 1024;

/** A resource as the server holds it; null bytes: sent without a payload. */
export interface ServedResource {
  readonly version: string;
  readonly bytes: Uint8Array | null;
}

/** A stream the server took. */
export interface ServedStream {
  readonly token: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly requests: Request[];
  /** The refusals among the requests. */
  nacks(): readonly string[];
  /** ACKs of a type. */
  acks(type: string): number;
  /** `initial_resource_versions` of the first request of a type. */
  resumed(type: string): Readonly<Record<string, string>> | undefined;
}

/** See {@link startAdsServer}. */
export interface AdsServer {
  readonly address: string;
  /** File with the root that signed the server's certificate. */
  readonly rootPath: string;
  readonly dir: string;
  /** Everything served, by type and name. */
  readonly resources: Map<string, Map<string, ServedResource>>;
  readonly streams: ServedStream[];
  /** The only token accepted, when set. */
  acceptedToken: string | null;
  set(type: string, name: string, version: string, bytes: Uint8Array | null): void;
  remove(type: string, name: string): void;
  /** Sends what was set and removed since the last push to the open streams. */
  push(): void;
  /** Sends a response as it is. */
  send(response: envoy.service.discovery.v3.DeltaDiscoveryResponse.$Properties): void;
  /** Ends the open streams: cleanly. */
  endStreams(): void;
  /** Goes away without a goodbye; {@link start} comes back on the same port. */
  stop(): void;
  start(): Promise<void>;
}

/** Starts a server on 127.0.0.1 with a certificate for that address and `names`. */
export async function startAdsServer(
  t: ExecutionContext,
  names: readonly string[] = [],
): Promise<AdsServer> {
  const dir = await makeScratch('ads');
  const rootPath = join(dir, 'root-cert.pem');
  const credentials = await makeCredentials(rootPath, names);
  const open = new Set<OpenStream>();
  const port = await ownPort();
  let server = createGrpcServer(MAX_REQUEST_BYTES);
  const changed = new Map<string, Set<string>>();
  const touch = (type: string, name: string): void => {
    const touched = changed.get(type) ?? new Set();
    changed.set(type, touched.add(name));
  };
  const ads: AdsServer = {
    get address() {
      return `https://127.0.0.1:${port}`;
    },
    rootPath,
    dir,
    resources: new Map(),
    streams: [],
    acceptedToken: null,
    set(type, name, version, bytes) {
      const ofType = ads.resources.get(type) ?? new Map<string, ServedResource>();
      ads.resources.set(type, ofType.set(name, { version, bytes }));
      touch(type, name);
    },
    remove(type, name) {
      ads.resources.get(type)?.delete(name);
      touch(type, name);
    },
    push() {
      for (const [type, touched] of changed) {
        for (const stream of open) stream.send(type, [...touched]);
      }
      changed.clear();
    },
    send(response) {
      for (const stream of open) stream.call.write(response);
    },
    endStreams() {
      for (const stream of open) stream.call.end();
    },
    stop: () => server.forceShutdown(),
    async start() {
      server = createGrpcServer(MAX_REQUEST_BYTES);
      server.addService(
        {
          delta: {
            path: DELTA_METHOD,
            requestStream: true,
            responseStream: true,
            requestDeserialize: (bytes: Buffer) => DeltaDiscoveryRequest.decode(bytes),
            requestSerialize: () => Buffer.alloc(0),
            responseSerialize: (
              message: envoy.service.discovery.v3.DeltaDiscoveryResponse.$Properties,
            ) => Buffer.from(DeltaDiscoveryResponse.encode(message).finish()),
            responseDeserialize: (bytes: Buffer) => DeltaDiscoveryResponse.decode(bytes),
          },
        },
        { delta: (call: Call) => serve(call) },
      );
      await bindGrpcServer(server, { kind: 'tcp', host: '127.0.0.1', port }, credentials);
    },
  };
  const serve = (call: Call): void => {
    const headers = call.metadata.getMap();
    const token = String(headers['authorization'] ?? '').replace(/^Bearer /, '');
    if (ads.acceptedToken !== null && token !== ads.acceptedToken) {
      call.emit('error', { code: 16, details: 'token not accepted' });
      return;
    }
    const stream = new OpenStream(call, ads, token, headers);
    ads.streams.push(stream);
    open.add(stream);
    call.on('data', (request: Request) => stream.take(request));
    call.on('end', () => call.end());
    for (const end of ['close', 'error', 'cancelled']) call.on(end, () => open.delete(stream));
  };
  t.teardown(async () => {
    ads.stop();
    await rm(dir, { recursive: true, force: true });
  });
  await ads.start();
  return ads;
}

class OpenStream implements ServedStream {
  readonly requests: Request[] = [];
  readonly call: Call;
  readonly token: string;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly #ads: AdsServer;
  #nonce = 0;

  constructor(
    call: Call,
    ads: AdsServer,
    token: string,
    headers: Readonly<Record<string, unknown>>,
  ) {
    this.call = call;
    this.#ads = ads;
    this.token = token;
    this.headers = headers;
  }

  nacks(): readonly string[] {
    return this.requests.flatMap(({ errorDetail }) =>
      errorDetail ? [errorDetail.message ?? ''] : [],
    );
  }

  acks(type: string): number {
    return this.requests.filter(
      (request) => request.typeUrl === type && request.responseNonce !== '' && !request.errorDetail,
    ).length;
  }

  resumed(type: string): Readonly<Record<string, string>> | undefined {
    return this.requests.find((request) => request.typeUrl === type)?.initialResourceVersions;
  }

  /** The first request of a type is answered with all that the client does not have, as istiod does. */
  take(request: Request): void {
    const first = !this.requests.some(({ typeUrl }) => typeUrl === request.typeUrl);
    this.requests.push(request);
    if (!first || request.responseNonce !== '') return;
    const held = request.initialResourceVersions;
    const served = this.#ads.resources.get(request.typeUrl) ?? new Map<string, ServedResource>();
    const names = [...served].filter(([name, { version }]) => held[name] !== version);
    const gone = Object.keys(held).filter((name) => !served.has(name));
    this.send(request.typeUrl, [...names.map(([name]) => name), ...gone]);
  }

  send(typeUrl: string, names: readonly string[]): void {
    const served = this.#ads.resources.get(typeUrl);
    this.#nonce += 1;
    this.call.write({
      typeUrl,
      nonce: `n${this.#nonce}`,
      resources: names.flatMap((name) => {
        const resource = served?.get(name);
        if (resource === undefined) return [];
        const { version, bytes } = resource;
        return [
          { name, version, ...(bytes === null ? {} : { resource: { typeUrl, value: bytes } }) },
        ];
      }),
      removedResources: names.filter((name) => served?.has(name) !== true),
    });
  }
}

/** Credentials of a server on 127.0.0.1 that also has `names`; writes the root that signed them. */
export async function makeCredentials(
  rootPath: string,
  names: readonly string[],
): Promise<RotatingServerCredentials> {
  return (await makeServingPair(rootPath, names)).credentials;
}

/** {@link makeCredentials}, with the certificate and the key for another kind of server. */
export async function makeServingPair(
  rootPath: string,
  names: readonly string[],
): Promise<{ chainPem: string; keyPem: string; credentials: RotatingServerCredentials }> {
  const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
  const root = await createRoot('cluster.local', validity.notBeforeMs, validity.notAfterMs);
  const issuer = { certificate: new X509Certificate(root.certificatePem), key: root.key };
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const chainPem = await issueLeaf(issuer, {
    publicKey,
    names: [
      { kind: 'ip', value: '127.0.0.1' },
      ...names.map((value) => ({ kind: 'dns' as const, value })),
    ],
    ...validity,
  });
  await writeFile(rootPath, root.certificatePem);
  const keyPem = privateKey.export({ type: 'pkcs8', format: 'pem' });
  return { chainPem, keyPem, credentials: new RotatingServerCredentials({ chainPem, keyPem }) };
}
