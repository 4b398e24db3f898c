/** The control plane as an actor: takes manifests and serves the workload API. */
import { randomUUID } from 'node:crypto';
import type { Server } from '@grpc/grpc-js';
import type { Actor, ActorContext, ActorDefinition, Deadline } from '../../lib/actor/actor.ts';
import { connectBus } from '../../lib/bus/redis-bus.ts';
import {
  RotatingServerCredentials,
  bindGrpcServer,
  createGrpcServer,
  shutDownGrpcServer,
} from '../../lib/grpc/server.ts';
import { ServingCertKeeper } from '../../lib/identity/serving-cert.ts';
import { TokenVerifier } from '../../lib/identity/token.ts';
import { DeltaServer, MAX_REQUEST_BYTES, deltaService } from '../../lib/xds/delta-server.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../lib/xds/type-urls.ts';
import { adminRoutes } from './admin.ts';
import { ManifestApiServer } from './api/manifest-api-server.ts';
import { ObjectWatchers } from './api/object-watchers.ts';
import { controlPlaneConfig } from './config.ts';
import type { ControlPlaneConfig } from './config.ts';
import { Debounce } from './debounce.ts';
import { EnrolmentFollower } from './enrolments/enrolment-follower.ts';
import { ManifestReader } from './manifests/manifest-reader.ts';
import { MeshMap } from './mapping/mesh-map.ts';
import { controlPlaneMetrics } from './metrics.ts';
import type { ControlPlaneMetrics } from './metrics.ts';
import { ManifestDirectory } from './store/manifest-directory.ts';
import { ObjectStore } from './store/object-store.ts';
import type { AdmissionContext } from './store/admission.ts';
import { ensureNamespaces } from './store/transactions.ts';

/** The CA decides the lifetime of the serving certificate. */
const CA_DECIDES = 0;

/** A connection outlives the streams opened with it; both ages are spread by a tenth. */
const CONNECTION_AGE_FACTOR = 1.25;
/** The grace period of Istio's server. */
const CONNECTION_GRACE_MS = 10_000;
/** Node.js fires a longer timer at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The parts that the steps of the start share. */
interface Parts {
  readonly context: ActorContext;
  readonly store: ObjectStore;
  readonly map: MeshMap;
  readonly watchers: ObjectWatchers;
  readonly reader: ManifestReader;
  readonly delta: DeltaServer;
  readonly metrics: ControlPlaneMetrics;
}

/** Serves the workload API from manifests. */
export class ControlPlaneActor implements Actor {
  readonly #config: ControlPlaneConfig;
  readonly #closing = new AbortController();
  readonly #made = new AsyncDisposableStack();
  #delta: DeltaServer | null = null;
  #server: Server | null = null;
  #port: number | null = null;

  constructor(config: ControlPlaneConfig) {
    this.#config = config;
  }

  /** The port of delta ADS; null until it listens. */
  get port(): number | null {
    return this.#port;
  }

  async start(context: ActorContext): Promise<void> {
    const releases = {
      store: context.readiness.block('store'),
      certificate: context.readiness.block('serving-certificate'),
      listening: context.readiness.block('listening'),
    };
    const { log } = context;
    const store = await ObjectStore.open(this.#config.stateDir, log);
    this.#made.defer(() => store.close());
    context.supervise('store', store.done);
    await store.transact((draft) => ensureNamespaces(draft, this.#admission(context)));
    const map = new MeshMap(store.state, this.#config.settings);
    const watchers = new ObjectWatchers(store, log);
    const follower = this.#followEnrolments(store, context, () => metrics.malformedEnrolment());
    const metrics: ControlPlaneMetrics = controlPlaneMetrics(context.metrics, {
      objects: (kind) => store.state.count(kind),
      resources: (type) => map.index.of(type === 'WDS' ? ADDRESS_TYPE : AUTHORIZATION_TYPE).size,
      transactionsWaiting: () => store.depth,
      watchers: () => watchers.size,
      nodes: () => follower?.size ?? 0,
    });
    const reader = new ManifestReader();
    this.#made.defer(() => reader.close());
    const delta = this.#serve(map, context);
    this.#delta = delta;
    const parts = { context, store, map, watchers, reader, delta, metrics };
    await this.#followDirectory(parts);
    this.#pushChanges(parts);
    await this.#openApi(parts);
    adminRoutes(context.admin, map.index, store, delta);
    releases.store();
    await this.#bind(parts, releases);
  }

  async drain(deadline: Deadline): Promise<void> {
    this.#delta?.drain();
    if (this.#server !== null) await shutDownGrpcServer(this.#server, deadline.signal);
  }

  stop(): Promise<void> {
    this.#closing.abort(new Error('the control plane is stopped'));
    return this.#made.disposeAsync();
  }

  #admission(context: ActorContext): AdmissionContext {
    const { ranges, settings, bus } = this.#config;
    return {
      ranges,
      policies: settings.policies,
      ownsRedirection: bus !== null,
      now: new Date(context.clock.now()).toISOString(),
      newUid: randomUUID,
      fixedNamespaces: ['default', settings.policies.rootNamespace],
    };
  }

  #followEnrolments(
    store: ObjectStore,
    context: ActorContext,
    malformed: () => void,
  ): EnrolmentFollower | null {
    if (this.#config.bus === null) return null;
    const { log, clock } = context;
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics: context.metrics,
      name: context.actor,
      supervise: (name, work) => context.supervise(name, work),
    });
    this.#made.defer(() => bus.close());
    const follower = new EnrolmentFollower({ bus, store, clock, log, malformed });
    this.#made.defer(() => follower.close());
    return follower;
  }

  async #followDirectory({ store, reader, context, metrics }: Parts): Promise<void> {
    if (this.#config.manifestsDir === null) return;
    const directory = new ManifestDirectory(this.#config.manifestsDir, {
      store,
      reader,
      clock: context.clock,
      log: context.log,
      context: () => this.#admission(context),
      brokenFiles: (count) => metrics.filesBroken(count),
      refused: () => metrics.fileRefused(),
    });
    this.#made.defer(() => directory.close());
    await directory.start();
  }

  #serve(map: MeshMap, context: ActorContext): DeltaServer {
    const { log, clock, metrics } = context;
    const verifier = new TokenVerifier(this.#config.token, { clock, log });
    return new DeltaServer({
      source: map.index,
      authenticate: (token) => verifier.verify(token),
      ready: () => !this.#closing.signal.aborted,
      accounts: this.#config.accounts,
      streamsPerSecond: this.#config.streamsPerSecond,
      maxStreamAgeMs: this.#config.maxStreamAgeMs,
      clock,
      log,
      metrics,
    });
  }

  #pushChanges({ store, map, delta, context, metrics }: Parts): void {
    const { clock } = context;
    const debounce = new Debounce(this.#config.debounce, clock, (waitedMs) => {
      // A part of a transaction may lack a policy that a later part puts back under another name.
      if (store.publishing) return debounce.report();
      const begun = clock.monotonic();
      const changed = map.refresh();
      metrics.pushed(waitedMs, clock.monotonic() - begun);
      delta.push(changed);
    });
    const unsubscribe = store.onCommit((changes) => {
      map.note(changes);
      debounce.report();
    });
    this.#made.defer(() => {
      unsubscribe();
      debounce.stop();
    });
    map.refresh();
  }

  async #openApi({ store, watchers, reader, context, metrics }: Parts): Promise<void> {
    this.#made.defer(() => watchers.close());
    const { apiSocket, podsSocket } = this.#config;
    for (const [path, role] of [
      [apiSocket, 'admin'],
      [podsSocket, 'pods'],
    ] as const) {
      if (path === null) continue;
      const api = new ManifestApiServer(path, role, {
        store,
        watchers,
        reader,
        log: context.log,
        context: () => this.#admission(context),
        count: (operation, outcome) => metrics.apiRequest(operation, outcome),
      });
      this.#made.defer(() => api.close());
      await api.listen();
    }
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
