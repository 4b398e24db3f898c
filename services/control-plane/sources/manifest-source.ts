/** Objects from files and from the manifest API, in a store of their own. */
import { randomUUID } from 'node:crypto';
import type { ActorContext } from '../../../lib/actor/actor.ts';
import { connectBus } from '../../../lib/bus/redis-bus.ts';
import { ManifestApiServer } from '../api/manifest-api-server.ts';
import { ObjectWatchers } from '../api/object-watchers.ts';
import type { ControlPlaneConfig } from '../config.ts';
import { EnrolmentFollower } from '../enrolments/enrolment-follower.ts';
import { ManifestReader } from '../manifests/manifest-reader.ts';
import type { AdmissionContext } from '../store/admission.ts';
import { ManifestDirectory } from '../store/manifest-directory.ts';
import { ObjectStore } from '../store/object-store.ts';
import type { StoreListener } from '../store/object-store.ts';
import type { CommittedState } from '../store/state.ts';
import { ensureNamespaces } from '../store/transactions.ts';
import { manifestMetrics } from './manifest-metrics.ts';
import type { ObjectSource } from './object-source.ts';

/** Keeps the objects on disk. The owner disposes it. */
export class ManifestSource implements ObjectSource {
  readonly #config: ControlPlaneConfig;
  readonly #context: ActorContext;
  readonly #store: ObjectStore;
  readonly #made = new AsyncDisposableStack();

  private constructor(config: ControlPlaneConfig, context: ActorContext, store: ObjectStore) {
    this.#config = config;
    this.#context = context;
    this.#store = store;
    this.#made.defer(() => store.close());
  }

  /** Loads the store, reads the files and opens the API. Throws as the parts do. */
  static async open(config: ControlPlaneConfig, context: ActorContext): Promise<ManifestSource> {
    const store = await ObjectStore.open(config.stateDir, context);
    const source = new ManifestSource(config, context, store);
    try {
      await source.#start();
    } catch (error) {
      await source.#made.disposeAsync();
      throw error;
    }
    return source;
  }

  get objects(): CommittedState {
    return this.#store.state;
  }

  get publishing(): boolean {
    return this.#store.publishing;
  }

  onCommit(listener: StoreListener): () => void {
    return this.#store.onCommit(listener);
  }

  /** The store has everything from the start. */
  synced(): Promise<void> {
    return Promise.resolve();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#made.disposeAsync();
  }

  async #start(): Promise<void> {
    const { log, clock, metrics: registry } = this.#context;
    const { manifestsDir, apiSocket, podsSocket } = this.#config;
    const store = this.#store;
    this.#context.supervise('store', store.done);
    await store.transact((draft) => ensureNamespaces(draft, this.#admission()));
    const watchers = new ObjectWatchers(store, log);
    this.#made.defer(() => watchers.close());
    const follower = this.#followEnrolments(() => metrics.malformedEnrolment());
    const metrics = manifestMetrics(registry, {
      transactionsWaiting: () => store.depth,
      watchers: () => watchers.size,
      nodes: () => follower?.size ?? 0,
    });
    const reader = new ManifestReader();
    this.#made.defer(() => reader.close());
    if (manifestsDir !== null) {
      const directory = new ManifestDirectory(manifestsDir, {
        store,
        reader,
        clock,
        log,
        context: () => this.#admission(),
        brokenFiles: (count) => metrics.filesBroken(count),
        refused: () => metrics.fileRefused(),
      });
      this.#made.defer(() => directory.close());
      await directory.start();
    }
    for (const [path, role] of [
      [apiSocket, 'admin'],
      [podsSocket, 'pods'],
    ] as const) {
      if (path === null) continue;
      const api = new ManifestApiServer(path, role, {
        store,
        watchers,
        reader,
        log,
        context: () => this.#admission(),
        count: (operation, outcome) => metrics.apiRequest(operation, outcome),
      });
      this.#made.defer(() => api.close());
      await api.listen();
    }
  }

  #admission(): AdmissionContext {
    const { ranges, settings, bus } = this.#config;
    return {
      ranges,
      policies: settings.policies,
      ownsRedirection: bus !== null,
      now: new Date(this.#context.clock.now()).toISOString(),
      newUid: randomUUID,
      fixedNamespaces: ['default', settings.policies.rootNamespace],
    };
  }

  #followEnrolments(malformed: () => void): EnrolmentFollower | null {
    if (this.#config.bus === null) return null;
    const { log, clock, metrics, actor, supervise } = this.#context;
    const bus = connectBus(this.#config.bus, {
      log,
      clock,
      metrics,
      name: actor,
      supervise: (name, work) => supervise(name, work),
    });
    this.#made.defer(() => bus.close());
    const follower = new EnrolmentFollower({ bus, store: this.#store, clock, log, malformed });
    this.#made.defer(() => follower.close());
    return follower;
  }
}
