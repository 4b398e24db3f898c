/** The parts of a control plane on Kubernetes: the source, the leader's writes and the admission webhook. */
import { join } from 'node:path';
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
import {
  ROOT_FILE,
  followCertificateFiles,
  readCertificateFiles,
} from './webhook/certificate-files.ts';
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
    const { settings, ranges, webhook } = this.#config;
    const { clock, log, metrics } = this.#context;
    const leader = new Leader(
      {
        rootNamespace: settings.policies.rootNamespace,
        ranges,
        webhookRoots: webhook.listen === null ? null : () => this.#webhookRoots(),
      },
      { source: this.source, map, client: this.#client, clock, log, metrics },
    );
    this.#made.defer(() => leader.close());
    this.#context.supervise('leader', leader.run());
  }

  /** Opens the admission webhook where it is wanted, with the certificate of the folder or of the keeper. */
  async openWebhook(keeper: ServingCertKeeper, signal: AbortSignal): Promise<void> {
    const { listen, certDir } = this.#config.webhook;
    if (listen === null) return;
    const { log } = this.#context;
    const certificate =
      certDir === null ? await keeper.first(signal) : await readCertificateFiles(certDir);
    const server = new WebhookServer(
      certificate,
      this.#config.ca.tls ?? DEFAULT_TLS_POLICY,
      this.#context,
    );
    this.#made.defer(() => server.close());
    const end =
      certDir === null
        ? keeper.onChange((next) => server.rotate(next))
        : followCertificateFiles(certDir, this.#context, (next) => server.rotate(next));
    this.#made.defer(end);
    const port = await server.listen(listen);
    log.info({ port }, 'webhook.listening');
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#made.disposeAsync();
  }

  #webhookRoots(): Promise<string> {
    const { certDir } = this.#config.webhook;
    return readRoots(
      certDir === null ? this.#config.meshRoots : { kind: 'file', path: join(certDir, ROOT_FILE) },
    );
  }
}
