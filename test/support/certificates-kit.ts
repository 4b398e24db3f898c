/** A node's way to certificates, end to end: real Redis with ACL users, real CA, real fetcher, real manager. */
import type { ExecutionContext } from 'ava';
import { SIGNED_BOARD, certificateSign, signedSchema } from '../../lib/bus/catalog.ts';
import { systemClock } from '../../lib/clock/clock.ts';
import { CertificateManager } from '../../lib/identity/certificate-manager.ts';
import { certificateMetrics } from '../../lib/identity/certificate-metrics.ts';
import { parseRootSource } from '../../lib/tls/roots.ts';
import { TrustBundle } from '../../lib/identity/trust-bundle.ts';
import type { WorkloadCertificate } from '../../lib/identity/workload-certificate.ts';
import type { MeshError } from '../../lib/errors/mesh-error.ts';
import { MetricRegistry } from '../../lib/metrics/registry.ts';
import { encodeWorkload } from '../../lib/xds/resources/address.ts';
import { CertFetcherActor } from '../../services/cert-fetcher/cert-fetcher-actor.ts';
import { certFetcherConfig } from '../../services/cert-fetcher/config.ts';
import { BusSigning } from '../../services/node-proxy/signing.ts';
import { keptLog, startActor } from './actor-context.ts';
import type { LogLine, TestActor } from './actor-context.ts';
import { heldLease, openBus } from './bus.ts';
import type { TestBus } from './bus.ts';
import type { CaKit } from './ca-kit.ts';
import type { TestRedis } from './redis.ts';
import { until } from './until.ts';
import { workload } from './workloads.ts';

/** Publishes workloads as the ingester does: account → node. */
export async function publishWorkloads(
  t: ExecutionContext,
  redis: TestRedis,
  accounts: Readonly<Record<string, string>>,
): Promise<void> {
  const { bus } = openBus(t, redis.config('xds-ingester'), 'ingester');
  const lease = await heldLease(bus, 'ingest', 'mesh');
  const rows = Object.entries(accounts).map(([account, node]): [string, Uint8Array] => {
    const uid = `cluster//Pod/demo/${account}-1`;
    return [
      uid,
      encodeWorkload(workload({ uid, name: `${account}-1`, serviceAccount: account, node })),
    ];
  });
  await bus.writer('addresses', 'mesh', lease).replaceAll(rows);
  // The next publisher must not wait for this lease to run out.
  await bus.close();
}

/** Starts a node's fetcher. */
export async function startFetcher(
  t: ExecutionContext,
  kit: CaKit,
  redis: TestRedis,
  options: { readonly node?: string; readonly environment?: Readonly<Record<string, string>> } = {},
): Promise<TestActor> {
  const node = options.node ?? 'node-1';
  const config = certFetcherConfig.parse({
    ...redis.environment(`cert-fetcher.${node}`),
    CA_ADDRESS: kit.address(),
    CA_ROOT_CA: kit.bundlePath,
    AUTH_TOKEN: await kit.nodeToken(node),
    ...options.environment,
  });
  return startActor(t, new CertFetcherActor(config), 'cert-fetcher', node);
}

/** A node-proxy's part. */
export interface CertificateUser {
  readonly manager: CertificateManager;
  readonly bundle: TrustBundle;
  readonly bus: TestBus;
  readonly published: WorkloadCertificate[];
  readonly unavailable: [string, MeshError][];
  readonly lines: LogLine[];
  readonly metrics: MetricRegistry;
  available(identity: string): Promise<WorkloadCertificate>;
}

/** A manager over the bus, as node-proxy runs it. */
export async function startManager(
  t: ExecutionContext,
  kit: Pick<CaKit, 'bundlePath'>,
  redis: TestRedis,
  node = 'node-1',
): Promise<CertificateUser> {
  const { log, lines } = keptLog('node-proxy');
  const bus = openBus(t, redis.config(`node-proxy.${node}`), `node-proxy.${node}`);
  const bundle = new TrustBundle(parseRootSource(kit.bundlePath), { clock: systemClock, log });
  await bundle.start();
  const signing = new BusSigning(
    `node-proxy-${process.pid}-${Math.random().toString(36).slice(2)}`,
    {
      queue: bus.bus.queue(certificateSign, { node }),
      bus: bus.bus,
      board: bus.bus.results(SIGNED_BOARD, { node }, signedSchema),
      clock: systemClock,
      log,
    },
  );
  const metrics = new MetricRegistry();
  const manager: CertificateManager = new CertificateManager(node, {
    clock: systemClock,
    log,
    signing,
    bundle,
    metrics: certificateMetrics(metrics, {
      counts: () => manager.counts(),
      hoursToFirstExpiry: () => manager.hoursToFirstExpiry(),
    }),
  });
  const published: WorkloadCertificate[] = [];
  const unavailable: [string, MeshError][] = [];
  manager.subscribe({
    certificate: (certificate) => published.push(certificate),
    unavailable: (identity, error) => unavailable.push([identity, error]),
  });
  t.teardown(() => {
    manager.close();
    bundle.close();
  });
  return {
    manager,
    bundle,
    bus,
    published,
    unavailable,
    lines,
    metrics,
    available: (identity) =>
      until(
        () => {
          const status = manager.want(identity, 'realTime');
          return status.kind === 'available' ? status.certificate : null;
        },
        { what: `a certificate of ${identity}`, timeoutMs: 30_000 },
      ),
  };
}
