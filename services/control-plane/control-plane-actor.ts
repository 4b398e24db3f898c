/** The control plane as an actor: follows the mesh's objects and serves the workload API. */
import type { Server } from '@grpc/grpc-js';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
  shutDownGrpcServer,
} from '../../lib/grpc/server.ts';
import { TimeSlice } from '../../lib/async/time-slice.ts';
import { present } from '../../lib/errors/assert.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { ServingCertKeeper } from '../../lib/identity/serving-cert.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { MeshConfigFollower } from '../../lib/mesh-config/follower.ts';
import { meshConfigMap } from '../../lib/mesh-config/text.ts';
import { DeltaServer, MAX_REQUEST_BYTES, deltaService } from '../../lib/xds/delta-server.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import { adminRoutes, debugRoutes } from './admin.ts';
import { controlPlaneConfig } from './config.ts';
import type { ControlPlaneConfig } from './config.ts';
import { Debounce } from './debounce.ts';
import { SLICE_MS } from './limits.ts';
import { KINDS } from './manifests/kinds.ts';
import { KubernetesParts } from './kubernetes-parts.ts';
import { meshConfigText, readMeshConfig } from './mapping/mesh-config.ts';
import { MeshMap } from './mapping/mesh-map.ts';
import { controlPlaneMetrics } from './metrics.ts';
import type { ControlPlaneMetrics } from './metrics.ts';
import { ManifestSource } from './sources/manifest-source.ts';
import type { ObjectSource } from './sources/object-source.ts';
import type { ObjectChange } from './store/object-store.ts';

/** The CA decides the lifetime of the serving certificate. */
const CA_DECIDES = 0;

/** A connection outlives the streams opened with it; both ages are spread by a tenth. */
const CONNECTION_AGE_FACTOR = 1.25;
/** The grace period of Istio's server. */
const CONNECTION_GRACE_MS = 10_000;
/** Node.js fires a longer timer at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** Verifies callers' tokens. */
type Verifier = Pick<TokenVerifier, 'verify'>;

/** The parts that the steps of the start share. */
interface Parts {
  readonly context: ActorContext;
  readonly source: ObjectSource;
  readonly map: MeshMap;
  readonly delta: DeltaServer;
  readonly metrics: ControlPlaneMetrics;
}

/** Serves the workload API. */
export class ControlPlaneActor implements Actor {
  readonly #config: ControlPlaneConfig;
  readonly #closing = new AbortController();
  readonly #made = new AsyncDisposableStack();
  #delta: DeltaServer | null = null;
  #server: Server | null = null;
  #port: number | null = null;
  /** Null with manifests. */
  #kubernetes: KubernetesParts | null = null;

  constructor(config: ControlPlaneConfig) {
    this.#config = config;
  }

  /** The port of delta ADS; null until it listens. */
  get port(): number | null {
    return this.#port;
  }

  async start(context: ActorContext): Promise<void> {
    const releases = {
      objects: context.readiness.block('objects'),
      certificate: context.readiness.block('serving-certificate'),
      listening: context.readiness.block('listening'),
    };
    const source = await this.#openSource(context);
    const serve = async (): Promise<void> => {
      await source.synced();
      if (this.#closing.signal.aborted) return;
      const parts = await this.#map(source, context);
      releases.objects();
      this.#kubernetes?.lead(parts.map);
      await this.#bind(parts, releases);
    };
    // An API server may be away for long, so the start does not wait for it.
    if (this.#config.source === 'manifests') await serve();
    else context.supervise('serve', serve());
  }

  async drain(deadline: Deadline): Promise<void> {
    this.#delta?.drain();
    if (this.#server !== null) await shutDownGrpcServer(this.#server, deadline.signal);
  }

  stop(): Promise<void> {
    this.#closing.abort(new Error('the control plane is stopped'));
    return this.#made.disposeAsync();
  }

  async #openSource(context: ActorContext): Promise<ObjectSource> {
    if (this.#config.source === 'manifests') {
      return this.#made.use(await ManifestSource.open(this.#config, context));
    }
    this.#kubernetes = this.#made.use(await KubernetesParts.open(this.#config, context));
    return this.#kubernetes.source;
  }

  async #map(source: ObjectSource, context: ActorContext): Promise<Parts> {
    const { log } = context;
    const map = new MeshMap(this.#config.settings, (object, error) =>
      log.error({ object, error: errorText(error) }, 'mapping.failed'),
    );
    const metrics = controlPlaneMetrics(context.metrics, {
      objects: (kind) => source.objects.count(kind),
      resources: (type) => map.of(type === 'WDS' ? ADDRESS_TYPE : AUTHORIZATION_TYPE).size,
    });
    const verifier = this.#kubernetes?.verifier ?? this.#keySet(context);
    const delta = this.#serve(map, verifier, context);
    this.#delta = delta;
    const parts: Parts = { context, source, map, delta, metrics };
    await this.#pushChanges(parts);
    const shown = { delta, map, objects: source.objects };
    adminRoutes(context.admin, shown);
    debugRoutes(context.debug, shown, {
      authenticate: (token) => verifier.verify(token),
      rootNamespace: this.#config.settings.policies.rootNamespace,
    });
    return parts;
  }

  #keySet(context: ActorContext): Verifier {
    const { token } = this.#config;
    const jwksPath = present(token.jwksPath, 'the configuration demands a key set');
    return new TokenVerifier({ ...token, jwksPath }, context);
  }

  #serve(source: MeshMap, verifier: Verifier, context: ActorContext): DeltaServer {
    const { log, clock, metrics } = context;
    return new DeltaServer({
      source,
      authenticate: (token) => verifier.verify(token),
      ready: () => !this.#closing.signal.aborted,
      accounts: this.#config.accounts,
      streamsPerSecond: this.#config.streamsPerSecond,
      maxStreamAgeMs: this.#config.maxStreamAgeMs,
      pushThrottle: this.#config.pushThrottle,
      clock,
      log,
      metrics,
    });
  }

  /** Maps the objects that are there, then each change after a quiet time. */
  async #pushChanges({ source, map, delta, context, metrics }: Parts): Promise<void> {
    const { clock } = context;
    const push = async (): Promise<void> => {
      const begun = clock.monotonic();
      const changed = await map.refresh();
      metrics.mapped(clock.monotonic() - begun);
      await delta.push(changed);
    };
    const first = Promise.withResolvers<void>();
    const debounce = new Debounce(this.#config.debounce, clock, async (waitedMs) => {
      await first.promise;
      // A part of a transaction may lack a policy that a later part puts back under another name.
      if (source.publishing) return debounce.report();
      metrics.pushed(waitedMs);
      const work = push();
      context.supervise('push', work);
      await Promise.allSettled([work]);
    });
    const { rootNamespace } = this.#config.settings.policies;
    const meshConfig = new MeshConfigFollower({
      path: this.#config.meshConfig,
      clock,
      log: context.log,
      read: readMeshConfig,
      changed: (config) => {
        map.configure(config);
        this.#warnOfTrustDomain(config?.trustDomain, context);
        debounce.report();
      },
    });
    const note = (changes: readonly ObjectChange[]): void => {
      map.note(changes);
      for (const change of changes) {
        const text = meshConfigText(change, rootNamespace);
        if (text !== undefined) meshConfig.take(meshConfigMap(rootNamespace), text);
      }
    };
    const unsubscribe = source.onCommit((changes) => {
      note(changes);
      debounce.report();
    });
    this.#made.defer(() => {
      unsubscribe();
      meshConfig.close();
      debounce.stop();
    });
    await meshConfig.start();
    const slice = new TimeSlice(SLICE_MS);
    for (const kind of KINDS) {
      for (const after of source.objects.ofKind(kind)) {
        note([{ before: null, after }]);
        await slice.breathe();
      }
    }
    await push();
    first.resolve();
  }

  /** The CA reads no ConfigMap of the manifests. */
  #warnOfTrustDomain(named: string | undefined, { log }: ActorContext): void {
    const { source, meshConfig, settings } = this.#config;
    const signed = settings.trustDomain;
    if (source === 'kubernetes' || meshConfig !== null || (named ?? signed) === signed) return;
    log.warn(
      {
        named,
        signed,
        effect: 'the CA signs for TRUST_DOMAIN: set it, or WEFT_MESH_CONFIG, for both',
      },
      'trust-domain.not-signed',
    );
  }

  /**
   * Listens once the serving certificate has arrived. That may take long: the CA waits for the pods that the manifest
   * API serves.
   */
  async #bind(
    { delta, context }: Parts,
    releases: { certificate: () => void; listening: () => void },
  ): Promise<void> {
    const { log, clock } = context;
    const keeper = new ServingCertKeeper(
      {
        ca: this.#config.ca,
        meshRoots: this.#config.meshRoots,
        stateDir: this.#config.stateDir,
        lifetimeMs: CA_DECIDES,
      },
      { clock, log },
    );
    this.#made.defer(() => keeper.close());
    await keeper.start();
    const listen = async (): Promise<void> => {
      const credentials = new RotatingServerCredentials(
        await keeper.first(this.#closing.signal),
        this.#config.ca.tls,
      );
      releases.certificate();
      keeper.onChange((certificate) => credentials.rotate(certificate));
      // The age limit of a connection ends a client that reads nothing, which the end of its stream cannot.
      const server = createGrpcServer(MAX_REQUEST_BYTES, {
        'grpc.max_connection_age_ms': Math.min(
          this.#config.maxStreamAgeMs * CONNECTION_AGE_FACTOR,
          LONGEST_TIMER_MS / CONNECTION_AGE_FACTOR,
        ),
        'grpc.max_connection_age_grace_ms': CONNECTION_GRACE_MS,
      });
      this.#made.defer(() => server.forceShutdown());
      server.addService(deltaService, delta.handlers());
      this.#server = server;
      this.#port = await bindGrpcServer(server, this.#config.listen, credentials);
      await this.#kubernetes?.openWebhook(keeper, this.#closing.signal);
      releases.listening();
      log.info({ port: this.#port }, 'xds.listening');
    };
    context.supervise(
      'listen',
      listen().catch((error: unknown) => {
        if (!this.#closing.signal.aborted) throw error;
      }),
    );
  }
}

/** How the control plane is hosted. */
export const definition: ActorDefinition<ControlPlaneConfig> = {
  name: 'control-plane',
  perNode: false,
  config: controlPlaneConfig,
  create: (config) => new ControlPlaneActor(config),
};
