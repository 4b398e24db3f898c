/** The parts of a control plane on Kubernetes: the source, the leader's writes and the admission webhook. */
import type { ActorContext } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import type { ServingCertKeeper } from '../../lib/identity/serving-cert.ts';
import { TokenReviews } from '../../lib/identity/token-reviews.ts';
import { KubernetesClient } from '../../lib/kubernetes/client.ts';
import { findConnection } from '../../lib/kubernetes/connection.ts';
import { DEFAULT_TLS_POLICY } from '../../lib/tls/parameters.ts';
import { readRoots } from '../../lib/tls/roots.ts';
import type { ControlPlaneConfig } from './config.ts';
import { Leader } from './leader/leader.ts';
import type { MeshMap } from './mapping/mesh-map.ts';
import { KubernetesSource } from './sources/kubernetes-source.ts';
import { WebhookServer } from './webhook/webhook-server.ts';

/** Owns the connection to the API server. The owner disposes it. */
export class KubernetesParts {
  readonly source: KubernetesSource;
  /** Verifies the tokens of callers. */
  readonly verifier: TokenReviews;
  readonly #config: ControlPlaneConfig;
  readonly #context: ActorContext;
  readonly #client: KubernetesClient;
  readonly #made = new AsyncDisposableStack();

  private constructor(config: ControlPlaneConfig, context: ActorContext, client: KubernetesClient) {
    this.#config = config;
    this.#context = context;
    this.#client = client;
    this.#made.defer(() => client.close());
    const { clock, log, metrics } = context;
    this.verifier = new TokenReviews(config.token.audiences, { client, clock });
    const { rootNamespace } = config.settings.policies;
    this.source = new KubernetesSource({ client, clock, log, metrics, rootNamespace });
    this.#made.defer(() => this.source.close());
  }

  /** Begins to follow the API server. Throws as `findConnection`. */
  static async open(config: ControlPlaneConfig, context: ActorContext): Promise<KubernetesParts> {
    const client = new KubernetesClient(await findConnection(config.kubernetes), {
      clock: context.clock,
      metrics: context.metrics,
      tls: config.ca.tls ?? DEFAULT_TLS_POLICY,
      userAgent: `weft-${context.actor}`,
    });
    const parts = new KubernetesParts(config, context, client);
    context.supervise('source', parts.source.run());
    context.admin.route('GET', '/sources', (_request, response) => {
      sendJson(response, 200, { sources: parts.source.status() });
    });
    return parts;
  }

  /** Competes for the leader's work, which needs a mapping that is complete. */
  lead(map: MeshMap): void {
    const { settings, ranges, webhookListen, meshRoots } = this.#config;
    const { clock, log, metrics } = this.#context;
    const leader = new Leader(
      {
        rootNamespace: settings.policies.rootNamespace,
        ranges,
        webhookRoots: webhookListen === null ? null : () => readRoots(meshRoots),
      },
      { source: this.source, map, client: this.#client, clock, log, metrics },
    );
    this.#made.defer(() => leader.close());
    this.#context.supervise('leader', leader.run());
  }

  /** Opens the admission webhook where it is wanted, with the keeper's certificate. */
  async openWebhook(keeper: ServingCertKeeper, signal: AbortSignal): Promise<void> {
    const { webhookListen } = this.#config;
    if (webhookListen === null) return;
    const server = new WebhookServer(
      await keeper.first(signal),
      this.#config.ca.tls ?? DEFAULT_TLS_POLICY,
      this.#context,
    );
    this.#made.defer(() => server.close());
    this.#made.defer(keeper.onChange((next) => server.rotate(next)));
    const port = await server.listen(webhookListen);
    this.#context.log.info({ port }, 'webhook.listening');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#made.disposeAsync();
  }
}
