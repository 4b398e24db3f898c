/** A delta server over resources of a test's own, with real gRPC and TLS. */
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import type { SecureClient } from '../../lib/grpc/client.ts';
import { bindGrpcServer, createGrpcServer } from '../../lib/grpc/server.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { DeltaServer, MAX_REQUEST_BYTES, deltaService } from '../../lib/xds/delta-server.ts';
import type { ResourceType } from '../../lib/xds/type-urls.ts';
import type { ServedResource } from '../../lib/xds/wire.ts';
import { keptLog } from './actor-context.ts';
import { makeCredentials } from './ads-server.ts';
import { openDeltaClient } from './delta-test-client.ts';
import type { DeltaTarget } from './delta-test-client.ts';
import { makeScratch } from './leftovers.ts';
import { plainResource } from './plain-resource.ts';
import { createTokenIssuer, nodeSubject } from './token-issuer.ts';
import type { TestTokenIssuer } from './token-issuer.ts';

/** Type → name → resource. */
export type HeldResources = ReadonlyMap<string, ReadonlyMap<string, ServedResource>>;

/** `count` resources of `bytes` each. */
export function manyResources(count: number, bytes: number): ReadonlyMap<string, ServedResource> {
  return new Map(
    Array.from({ length: count }, (_, index) => {
      const name = `name-${index}`;
      return [name, plainResource(name, '1', new Uint8Array(bytes))] as const;
    }),
  );
}

/** A server that runs. */
export interface DeltaServerKit {
  readonly delta: DeltaServer;
  readonly issuer: TestTokenIssuer;
  /** As a node with a token of an hour. */
  readonly target: DeltaTarget;
  /** A channel as Weft's own client opens it; `token` may be the path of a file. */
  open(token: string): SecureClient;
  metrics(): Promise<string>;
}

/** Serves `held` until the test ends. Only the server's own time is `clock`. */
export async function serveDelta(
  t: ExecutionContext,
  held: HeldResources,
  options: {
    readonly clock?: Clock;
    readonly maxStreamAgeMs?: number;
    readonly maxResponseBytes?: number;
    readonly pushThrottle?: number;
    /** Time between two pings, and until a missing answer ends a connection. */
    readonly keepaliveMs?: number;
  } = {},
): Promise<DeltaServerKit> {
  const { log } = keptLog('server');
  const { clock = systemClock, maxStreamAgeMs = 1_800_000, maxResponseBytes } = options;
  const { pushThrottle = 25, keepaliveMs } = options;
  const metrics = new MetricRegistry();
  const dir = await makeScratch('delta');
  const issuer = createTokenIssuer();
  const jwksPath = join(dir, 'jwks.json');
  await issuer.publish(jwksPath);
  const verifier = new TokenVerifier(
    { jwksPath, audiences: ['istio-ca'], issuer: issuer.issuer },
    { clock, log },
  );
  const delta = new DeltaServer({
    source: { get: (type, name) => held.get(type)?.get(name) },
    authenticate: (token) => verifier.verify(token),
    accounts: ['istio-system/ztunnel'],
    ready: () => true,
    streamsPerSecond: 100,
    maxStreamAgeMs,
    pushThrottle,
    ...(maxResponseBytes === undefined ? {} : { maxResponseBytes }),
    clock,
    log,
    metrics,
  });
  await delta.push(
    new Map(
      [...held].map(([type, resources]) => [type as ResourceType, new Set(resources.keys())]),
    ),
  );
  const rootCa = join(dir, 'root.pem');
  const server = createGrpcServer(
    MAX_REQUEST_BYTES,
    keepaliveMs === undefined
      ? {}
      : { 'grpc.keepalive_time_ms': keepaliveMs, 'grpc.keepalive_timeout_ms': keepaliveMs },
  );
  server.addService(deltaService, delta.handlers());
  t.teardown(() => server.forceShutdown());
  const port = await bindGrpcServer(
    server,
    { kind: 'tcp', host: '127.0.0.1', port: 0 },
    await makeCredentials(rootCa, []),
  );
  const address = `https://127.0.0.1:${port}`;
  const token = await issuer.mint(nodeSubject('node-1'), { issuedAtMs: clock.now() });
  return {
    delta,
    issuer,
    target: { address, rootCa, token },
    open: (authToken) => openDeltaClient({ address, rootCa, token: authToken }),
    metrics: () => metrics.render(),
  };
}
