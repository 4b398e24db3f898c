/** The certificate fetcher of a node as an actor: signing jobs in, answers of the CA out. */
import { isDeepStrictEqual } from 'node:util';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { SIGNED_BOARD, certificateSign, signedSchema } from '../../lib/bus/catalog.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { WorkConsumer } from '../../lib/bus/contract.ts';
import { exposeQueueDepths, routeQueues } from '../../lib/bus/queue-metrics.ts';
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
  /** Everything that the start made; disposed in reverse order. */
  readonly #made = new AsyncDisposableStack();
  #consumer: WorkConsumer | null = null;
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
    for (const roots of new Set([bundle, caRoots])) {
      this.#made.defer(() => roots.close());
      await roots.start();
    }
    const ca = new CaClient(caOptions);
    this.#made.defer(() => ca.close());
    caRoots.onChange(() => ca.reconnect());
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics: context.metrics,
      name: `cert-fetcher.${node}`,
      supervise: (name, work) => context.supervise(name, work),
    });
    this.#made.defer(() => bus.close());
    exposeQueueDepths(context.metrics, bus, [scope], log);
    routeQueues(context.admin, bus, [scope]);
    const identities = new NodeIdentities(node, log, release);
    bus.reader('addresses', 'mesh', identities.mirror);
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
    this.#declareStatus(context, { bus, bundle, identities });
  }

  async drain(_deadline: Deadline): Promise<void> {
    await this.#consumer?.drain();
  }

  async stop(): Promise<void> {
    await this.#made.disposeAsync();
  }

  #declareStatus(
    context: ActorContext,
    parts: { readonly bus: Bus; readonly bundle: TrustBundle; readonly identities: NodeIdentities },
  ): void {
    const { bus, bundle, identities } = parts;
    context.admin.route('GET', '/status', (_request, response) => {
      sendJson(response, 200, {
        ca: this.#config.ca.address,
        redis: bus.connected,
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
