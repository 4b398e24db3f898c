/** The certificate authority as an actor. */
import { availableParallelism } from 'node:os';
import type { Server } from '@grpc/grpc-js';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { CallerRates, Gate } from '../../lib/async/gate.ts';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
  shutDownGrpcServer,
} from '../../lib/grpc/server.ts';
import { sendJson } from '../../lib/http/answers.ts';
import { createCertificateMethod } from '../../lib/identity/ca-protocol.ts';
import type { AuthoritySource } from './authority.ts';
import { BundleFile } from './bundle-file.ts';
import { CertificateService } from './certificate-service.ts';
import { caConfig } from './config.ts';
import type { CaConfig } from './config.ts';
import { CallerFailures } from '../../lib/grpc/caller-failures.ts';
import { Holders } from './holders.ts';
import {
  MAX_CALLERS,
  MAX_CALLER_REQUESTS_PER_SECOND,
  MAX_CONCURRENT_REQUESTS,
  MAX_FAILURES_PER_SECOND,
  MAX_REQUESTS_PER_SECOND,
  MAX_REQUEST_BYTES,
} from './limits.ts';
import { caMetrics } from './metrics.ts';
import { OwnAuthority } from './own-authority.ts';
import { OwnUntilPlugged } from './own-until-plugged.ts';
import { OwnCertificate } from './own-certificate.ts';
import { PluggedAuthority } from './plugged-authority.ts';
import type { FollowedPods, PodRegistry } from './pods.ts';
import { SigningPool, signingThreads } from './signing-pool.ts';
import { openSources } from './sources.ts';
import type { CaSources } from './sources.ts';
import type { CaStores } from './stores.ts';

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
    const sources = await openSources(this.#config, context, this.#made);
    const { stores } = sources;
    const holders = await this.#openHolders(context, stores);
    const authority = await this.#openAuthority(context, sources, holders);
    await this.#publishBundle(authority, context);
    sources.lead(authority);
    const followed = await sources.followPods();
    const pods = followed ?? NO_PODS;
    const metrics = caMetrics(context.metrics, { authority, pods, clock });
    const signer = new SigningPool(signingThreads(availableParallelism()));
    this.#made.defer(() => signer.close());
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
      verifier: sources.verifier,
      mesh: sources.mesh,
      authority,
      signer,
      holders,
    });
    this.#declareStatus(context, authority, sources, followed);
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

  async #openHolders({ clock, log }: ActorContext, stores: CaStores): Promise<Holders> {
    const holders = new Holders({ clock, log, store: stores.holders });
    await holders.refresh();
    this.#made.defer(() => holders.close());
    return holders;
  }

  async #openAuthority(
    { clock, log }: ActorContext,
    { stores, leads, mesh }: CaSources,
    holders: Holders,
  ): Promise<AuthoritySource> {
    const { plugged, pluggedLater } = stores;
    const own = (): AuthoritySource =>
      new OwnAuthority(this.#config, { clock, log, stores, holders, mesh, leads });
    let authority: AuthoritySource;
    if (plugged !== null) authority = new PluggedAuthority(plugged, { clock, log });
    else if (pluggedLater === null) authority = own();
    else authority = new OwnUntilPlugged(own(), pluggedLater, { clock, log });
    this.#made.defer(() => authority.close());
    await authority.start();
    return authority;
  }

  async #publishBundle(authority: AuthoritySource, { clock, log }: ActorContext): Promise<void> {
    const path = this.#config.rootBundleFile;
    if (path === null) return;
    const bundle = new BundleFile(path, { clock, log, authority });
    this.#made.defer(() => bundle.close());
    await bundle.start();
  }

  async #listen(
    context: ActorContext,
    authority: AuthoritySource,
    service: CertificateService,
  ): Promise<void> {
    const { servingHosts, tls, listen } = this.#config;
    const { clock, log } = context;
    const own = new OwnCertificate({ clock, log, authority, names: servingHosts }, (next) =>
      credentials.rotate(next),
    );
    this.#made.defer(() => own.close());
    const credentials = new RotatingServerCredentials(await own.start(), tls);
    const server = createGrpcServer(MAX_REQUEST_BYTES);
    this.#server = server;
    this.#made.defer(() => server.forceShutdown());
    server.addService({ createCertificate: createCertificateMethod }, service.handlers());
    this.#port = await bindGrpcServer(server, listen, credentials);
    log.info({ port: this.#port }, 'ca.listening');
  }

  #declareStatus(
    context: ActorContext,
    authority: AuthoritySource,
    { mesh, stores }: Pick<CaSources, 'mesh' | 'stores'>,
    pods: FollowedPods | null,
  ): void {
    // For operators, who reach no file of this process.
    context.admin.route('GET', '/report', async (_request, response) => {
      const { caStatus } = await import('./operations.ts');
      const { plugged, pluggedLater } = stores;
      const current = authority.where === pluggedLater?.where ? pluggedLater : plugged;
      const now = { ...stores, plugged: current };
      sendJson(response, 200, await caStatus(this.#config, now, context.clock.now()));
    });
    context.admin.route('GET', '/status', (_request, response) => {
      const { current, where, problem, rotation } = authority;
      sendJson(response, 200, {
        port: this.#port,
        trustDomain: mesh.current.trustDomain,
        trustDomainAliases: mesh.current.trustDomainAliases,
        root: new Date(current.rootExpiresMs).toISOString(),
        source: where,
        problem,
        rotation,
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
