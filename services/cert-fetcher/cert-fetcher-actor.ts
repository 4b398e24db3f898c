/** The certificate fetcher of a node as an actor: signing jobs in, answers of the CA out. */
import { isDeepStrictEqual } from 'node:util';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { SIGNED_BOARD, certificateSign, signedSchema } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { TableReader } from '../../lib/bus/table-reader.ts';
import type { WorkConsumer } from '../../lib/bus/contract.ts';
import { exposeQueueDepths } from '../../lib/bus/queue-metrics.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import { present } from '../../lib/errors/assert.ts';
import { CaClient } from '../../lib/identity/ca-client.ts';
import { parseRootSource } from '../../lib/tls/roots.ts';
import { meshBundle } from '../../lib/identity/mesh-roots.ts';
import { TrustBundle } from '../../lib/identity/trust-bundle.ts';
import { certFetcherConfig } from './config.ts';
import type { CertFetcherConfig } from './config.ts';
import { MAX_OUTSTANDING } from './limits.ts';
import { fetcherMetrics } from './metrics.ts';
import { NodeIdentities } from './node-identities.ts';
import { workOnSignJob } from './sign-job.ts';
import type { SignJobDeps } from './sign-job.ts';

/** Gets certificates of a node's workloads signed. Holds no key and no certificate. */
export class CertFetcherActor implements Actor {
  readonly #config: CertFetcherConfig;
  #bus: Bus | null = null;
  #reader: TableReader | null = null;
  #consumer: WorkConsumer | null = null;
  #ca: CaClient | null = null;
  /** The roots of the mesh and those of the CA's server. */
  #bundles: readonly TrustBundle[] = [];
  #outstanding = 0;

  constructor(config: CertFetcherConfig) {
    this.#config = config;
  }

  async start(context: ActorContext): Promise<void> {
    const { clock, log } = context;
    const node = present(context.node, 'the host gives a node actor its node');
    const scope = { node } as const;
    const release = context.readiness.block('addresses');
    const { meshRoots, ca: caOptions } = this.#config;
    const bundle = meshBundle(meshRoots, { clock, log });
    const caSource = parseRootSource(caOptions.rootCa);
    const caRoots = isDeepStrictEqual(caSource, meshRoots)
      ? bundle
      : new TrustBundle(caSource, { clock, log });
    this.#bundles = [...new Set([bundle, caRoots])];
    for (const started of this.#bundles) await started.start();
    const ca = new CaClient(caOptions);
    this.#ca = ca;
    caRoots.onChange(() => ca.reconnect());
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics: context.metrics,
      name: `cert-fetcher.${node}`,
      supervise: (name, work) => context.supervise(name, work),
    });
    this.#bus = bus;
    exposeQueueDepths(context.metrics, bus, [scope], log);
    const identities = new NodeIdentities(node, log, release);
    this.#reader = bus.reader('addresses', 'mesh', identities.mirror);
    const deps: SignJobDeps = {
      node,
      clock,
      log,
      identities,
      ca,
      lifetimeMs: this.#config.lifetimeMs,
      metrics: fetcherMetrics(context.metrics, {
        outstanding: () => this.#outstanding,
        identities: () => identities.size,
      }),
      board: bus.results(SIGNED_BOARD, scope, signedSchema),
      roots: () => bundle.current,
    };
    this.#consumer = bus.consume(
      certificateSign,
      scope,
      { concurrency: MAX_OUTSTANDING },
      async (body, attempt) => {
        this.#outstanding += 1;
        try {
          await workOnSignJob(body, attempt, deps);
        } finally {
          this.#outstanding -= 1;
        }
      },
    );
    this.#declareStatus(context, identities, bundle);
  }

  async drain(_deadline: Deadline): Promise<void> {
    await this.#consumer?.drain();
  }

  async stop(): Promise<void> {
    await this.#consumer?.close();
    await this.#reader?.close();
    await this.#bus?.close();
    for (const bundle of this.#bundles) bundle.close();
    this.#ca?.close();
    this.#consumer = null;
    this.#reader = null;
    this.#bus = null;
    this.#bundles = [];
    this.#ca = null;
  }

  #declareStatus(context: ActorContext, identities: NodeIdentities, bundle: TrustBundle): void {
    context.admin.route('GET', '/status', (_request, response) => {
      sendJson(response, 200, {
        ca: this.#config.ca.address,
        redis: this.#bus?.connected ?? false,
        identities: { synced: identities.synced, count: identities.size },
        outstanding: this.#outstanding,
        trustBundle: {
          roots: bundle.current?.certificates.length ?? 0,
          problem: bundle.problem,
        },
      });
    });
  }
}

/** The actor that gets certificates signed. */
export const definition: ActorDefinition<CertFetcherConfig> = {
  name: 'cert-fetcher',
  perNode: true,
  config: certFetcherConfig,
  create: (config) => new CertFetcherActor(config),
};
