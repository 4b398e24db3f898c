/** The certificate authority as an actor. */
import type { Server } from '@grpc/grpc-js';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { sendJson } from '../../lib/http/answers.ts';
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
import { CallerFailures } from '../../lib/grpc/caller-failures.ts';
import {
  MAX_CALLERS,
  MAX_CALLER_REQUESTS_PER_SECOND,
  MAX_CONCURRENT_REQUESTS,
  MAX_FAILURES_PER_SECOND,
  MAX_REQUESTS_PER_SECOND,
  MAX_REQUEST_BYTES,
} from './limits.ts';
import { caMetrics } from './metrics.ts';
import { issueOwnCertificate, renewOwnCertificate } from './own-certificate.ts';
import type { PodRegistry } from './pods.ts';

/** Stands for a missing source of pods: no pod is known, and nodes get no certificate. */
const NO_PODS: PodRegistry = { synced: false, runsOnNode: () => false, find: () => null };

/** Signs certificates for workloads and for the mesh's own servers. */
export class CaActor implements Actor {
  readonly #config: CaConfig;
  readonly #made = new AsyncDisposableStack();
  #server: Server | null = null;
  #port: number | null = null;

  constructor(config: CaConfig) {
    this.#config = config;
  }

  /** The bound port; null before the start. */
  get port(): number | null {
    return this.#port;
  }

  async start(context: ActorContext): Promise<void> {
    const release = context.readiness.block('ca');
    const { clock, log } = context;
    const authority = await this.#loadAuthority(clock.now());
    await this.#writeBundle(authority, context);
    const followed = await this.#followPods(context);
    const pods = followed ?? NO_PODS;
    const metrics = caMetrics(context.metrics, { authority, pods, clock });
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
      failures: new CallerFailures(MAX_FAILURES_PER_SECOND, clock),
      verifier: new TokenVerifier(this.#config.token, { clock, log }),
      authority,
    });
    this.#declareStatus(context, authority, followed);
    await this.#listen(context, authority, service);
    release();
  }

  drain(deadline: Deadline): Promise<void> {
    return this.#server === null
      ? Promise.resolve()
      : shutDownGrpcServer(this.#server, deadline.signal);
  }

  stop(): Promise<void> {
    return this.#made.disposeAsync();
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

  async #followPods(context: ActorContext): Promise<ControlPlanePods | null> {
    const { podsSocket, stateDir } = this.#config;
    if (podsSocket === null) {
      context.log.warn({ effect: 'every request of a node is refused' }, 'pods.not-configured');
      return null;
    }
    const pods = new ControlPlanePods(podsSocket, stateDir, context);
    this.#made.defer(() => pods.close());
    await pods.start();
    context.supervise('pods', pods.done);
    return pods;
  }

  async #listen(
    context: ActorContext,
    authority: Authority,
    service: CertificateService,
  ): Promise<void> {
    const { servingHosts, tls, listen } = this.#config;
    const own = await issueOwnCertificate(authority, servingHosts, context.clock.now());
    const credentials = new RotatingServerCredentials(own.certificate, tls);
    const stopped = new AbortController();
    this.#made.defer(() => stopped.abort());
    const renewal = renewOwnCertificate(own.notAfterMs, context, stopped.signal, async () => {
      const next = await issueOwnCertificate(authority, servingHosts, context.clock.now());
      credentials.rotate(next.certificate);
      return next.notAfterMs;
    });
    context.supervise('serving certificate', renewal);
    const server = createGrpcServer(MAX_REQUEST_BYTES);
    this.#server = server;
    this.#made.defer(() => server.forceShutdown());
    server.addService({ createCertificate: createCertificateMethod }, service.handlers());
    this.#port = await bindGrpcServer(server, listen, credentials);
    context.log.info({ port: this.#port }, 'ca.listening');
  }

  #declareStatus(context: ActorContext, authority: Authority, pods: ControlPlanePods | null): void {
    context.admin.route('GET', '/status', (_request, response) => {
      sendJson(response, 200, {
        port: this.#port,
        trustDomain: this.#config.trustDomain,
        root: new Date(authority.rootExpiresMs).toISOString(),
        pluggedIn: this.#config.pluggedDir !== null,
        pods: {
          synced: pods?.synced ?? false,
          followed: pods?.connected ?? false,
          problem: pods?.problem ?? null,
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
