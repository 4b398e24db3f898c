/** The certificate authority as an actor. */
import type { Server } from '@grpc/grpc-js';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { readIfPresent, replaceFile } from '../../lib/files/atomic-file.ts';
import { createCertificateMethod } from '../../lib/identity/ca-protocol.ts';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
  shutDownGrpcServer,
} from '../../lib/grpc/server.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { ownAuthority, pluggedAuthority } from './authority.ts';
import type { Authority } from './authority.ts';
import { CertificateService } from './certificate-service.ts';
import { caConfig } from './config.ts';
import type { CaConfig } from './config.ts';
import { ControlPlanePods } from './control-plane-pods.ts';
import { CallerRates, Gate } from '../../lib/async/gate.ts';
import {
  MAX_ADDRESSES,
  MAX_CALLERS,
  MAX_CALLER_REQUESTS_PER_SECOND,
  MAX_CONCURRENT_REQUESTS,
  MAX_FAILURES_PER_SECOND,
  MAX_REQUESTS_PER_SECOND,
  MAX_REQUEST_BYTES,
} from './limits.ts';
import { caMetrics } from './metrics.ts';
import { OwnRenewal, issueOwnCertificate } from './own-certificate.ts';
import type { PodRegistry } from './pods.ts';

/** Without a source of pods nothing is known, and nothing is granted to nodes. */
const NO_PODS: PodRegistry = { synced: false, runsOnNode: () => false, find: () => null };

/** Signs certificates for workloads and for the mesh's own servers. */
export class CaActor implements Actor {
  readonly #config: CaConfig;
  #authority: Authority | null = null;
  #server: Server | null = null;
  #pods: ControlPlanePods | null = null;
  #renewal: OwnRenewal | null = null;
  #port: number | null = null;

  constructor(config: CaConfig) {
    this.#config = config;
  }

  /** The port it listens on, once started. */
  get port(): number | null {
    return this.#port;
  }

  async start(context: ActorContext): Promise<void> {
    const release = context.readiness.block('ca');
    const { clock, log } = context;
    const authority = await this.#loadAuthority(clock.now());
    this.#authority = authority;
    await this.#writeBundle(authority, context);
    const pods = await this.#followPods(context);
    const metrics = caMetrics(context.metrics, {
      rootExpiryMs: () => this.#authority?.rootExpiresMs ?? null,
      chainExpiryMs: () => this.#authority?.chainExpiresMs ?? null,
      podsSynced: () => pods.synced,
      nowMs: () => clock.now(),
    });
    const service = new CertificateService(this.#config, {
      clock,
      log,
      metrics,
      pods,
      gate: new Gate(
        { concurrent: MAX_CONCURRENT_REQUESTS, perSecond: MAX_REQUESTS_PER_SECOND },
        clock,
      ),
      callers: new CallerRates(
        { perSecond: MAX_CALLER_REQUESTS_PER_SECOND, callers: MAX_CALLERS },
        clock,
      ),
      failures: new CallerRates(
        { perSecond: MAX_FAILURES_PER_SECOND, callers: MAX_ADDRESSES },
        clock,
      ),
      verifier: new TokenVerifier(this.#config.token, { clock, log }),
      authority: () => present(this.#authority, 'the authority is loaded before serving'),
    });
    this.#declareStatus(context, pods);
    await this.#listen(context, service);
    release();
  }

  drain(deadline: Deadline): Promise<void> {
    return this.#server === null
      ? Promise.resolve()
      : shutDownGrpcServer(this.#server, deadline.signal);
  }

  async stop(): Promise<void> {
    this.#renewal?.stop();
    this.#server?.forceShutdown();
    this.#server = null;
    await this.#pods?.close();
    this.#pods = null;
  }

  #loadAuthority(nowMs: number): Promise<Authority> {
    const { pluggedDir, stateDir, trustDomain } = this.#config;
    return pluggedDir === null
      ? ownAuthority(stateDir, trustDomain, nowMs)
      : pluggedAuthority(pluggedDir, nowMs);
  }

  async #writeBundle(authority: Authority, context: ActorContext): Promise<void> {
    const path = this.#config.rootBundleFile;
    if (path === null || (await readIfPresent(path)) === authority.rootsPem) return;
    await replaceFile(path, authority.rootsPem, 0o644);
    context.log.info({ path }, 'trust-bundle.written');
  }

  async #followPods(context: ActorContext): Promise<PodRegistry> {
    const { podsSocket, stateDir } = this.#config;
    if (podsSocket === null) {
      context.log.warn({ effect: 'every request of a node is refused' }, 'pods.not-configured');
      return NO_PODS;
    }
    const pods = new ControlPlanePods(podsSocket, stateDir, context);
    this.#pods = pods;
    await pods.start();
    context.supervise('pods', pods.done);
    return pods;
  }

  async #listen(context: ActorContext, service: CertificateService): Promise<void> {
    const { clock, log } = context;
    const issue = (): ReturnType<typeof issueOwnCertificate> =>
      issueOwnCertificate(
        present(this.#authority, 'the authority is loaded before serving'),
        this.#config.servingHosts,
        clock.now(),
      );
    const own = await issue();
    const credentials = new RotatingServerCredentials(own.certificate, this.#config.tls);
    this.#renewal = new OwnRenewal(
      clock,
      async () => {
        const next = await issue();
        credentials.rotate(next.certificate);
        return next.notAfterMs;
      },
      (error) => log.error({ problem: errorText(error) }, 'serving-certificate.renewal-failed'),
    );
    this.#renewal.schedule(own.notAfterMs);
    const server = createGrpcServer(MAX_REQUEST_BYTES);
    this.#server = server;
    server.addService({ createCertificate: createCertificateMethod }, service.handlers());
    this.#port = await bindGrpcServer(server, this.#config.listen, credentials);
    log.info({ port: this.#port }, 'ca.listening');
  }

  #declareStatus(context: ActorContext, pods: PodRegistry): void {
    context.admin.route('GET', '/status', (_request, response) => {
      const authority = this.#authority;
      sendJson(response, 200, {
        port: this.#port,
        trustDomain: this.#config.trustDomain,
        root: authority === null ? null : new Date(authority.rootExpiresMs).toISOString(),
        pluggedIn: this.#config.pluggedDir !== null,
        pods: {
          synced: pods.synced,
          followed: this.#pods?.connected ?? false,
          problem: this.#pods?.problem ?? null,
        },
      });
    });
  }
}

/** How the CA is hosted. */
export const definition: ActorDefinition<CaConfig> = {
  name: 'ca',
  perNode: false,
  config: caConfig,
  create: (config) => new CaActor(config),
};
