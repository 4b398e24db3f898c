/** Objects from a Kubernetes API server, reduced to the fields in use. */
import { isDeepStrictEqual } from 'node:util';
import { TimeSlice } from '../../../lib/async/time-slice.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import type { ReflectorState } from '../../../lib/kubernetes/reflector.ts';
import { reflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import type { ReflectedChange, ReflectorDeps } from '../../../lib/kubernetes/reflection.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { MetricRegistry } from '../../../lib/metrics/registry.ts';
import { SLICE_MS } from '../limits.ts';
import { kindResources } from '../manifests/kinds.ts';
import type { Kind, KubeObject } from '../manifests/kinds.ts';
import { reduce } from '../manifests/reduce.ts';
import type { ObjectChange, StoreListener } from '../store/object-store.ts';
import type { ObjectSource, ObjectView } from './object-source.ts';
import { ObjectTables } from './object-tables.ts';

/** The part of a kind's objects that is followed. */
interface Followed {
  readonly kind: Kind;
  readonly namespace?: string;
  readonly fieldSelector?: string;
}

/** Collaborators of a {@link KubernetesSource}. */
export interface KubernetesSourceDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: MetricRegistry;
  /** Namespace of the mesh's own configuration. */
  readonly rootNamespace: string;
}

/** How one kind is followed, for status pages. */
export interface SourceStatus {
  readonly resource: string;
  readonly state: ReflectorState;
  /** Null while all is well. */
  readonly problem: string | null;
}

/** Name of the ConfigMap with the mesh's configuration, as Istio has it. */
const MESH_CONFIG_MAP = 'istio';

/** ServiceAccounts are not followed: a pod names its own. */
function followed(rootNamespace: string): readonly Followed[] {
  return [
    { kind: 'Namespace' },
    { kind: 'Node' },
    {
      kind: 'ConfigMap',
      namespace: rootNamespace,
      fieldSelector: `metadata.name=${MESH_CONFIG_MAP}`,
    },
    { kind: 'Service' },
    { kind: 'EndpointSlice' },
    // A pod that has ended carries no traffic, and its address may belong to another.
    { kind: 'Pod', fieldSelector: 'status.phase!=Failed,status.phase!=Succeeded' },
    { kind: 'ServiceEntry' },
    { kind: 'WorkloadEntry' },
    { kind: 'GatewayClass' },
    { kind: 'Gateway' },
    { kind: 'AuthorizationPolicy' },
    { kind: 'PeerAuthentication' },
  ];
}

/** Follows every kind with a reflector of its own. The owner closes it. */
export class KubernetesSource implements ObjectSource {
  readonly #tables = new ObjectTables();
  /** An API server changes one object at a time. */
  readonly publishing = false;
  readonly #reflectors: readonly Reflector<KubeObject>[];
  readonly #listeners = new Set<StoreListener>();

  constructor(deps: KubernetesSourceDeps) {
    const shared = {
      ...deps,
      metrics: reflectorMetrics(deps.metrics),
      slice: new TimeSlice(SLICE_MS),
    };
    this.#reflectors = followed(deps.rootNamespace).map((part) => this.#reflector(part, shared));
    deps.metrics.gauge(
      'weft_control_plane_source_synced',
      '1 where a complete list of the resource was read, or the API server does not serve it',
      ['resource'],
      (gauge) => {
        for (const { resource, state } of this.status()) {
          gauge.set({ resource }, state === 'starting' ? 0 : 1);
        }
      },
    );
  }

  get objects(): ObjectView {
    return this.#tables;
  }

  /** Begins to follow. Settles when the source is closed. */
  async run(): Promise<void> {
    await Promise.all(this.#reflectors.map((reflector) => reflector.run()));
  }

  onCommit(listener: StoreListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async synced(): Promise<void> {
    await Promise.all(this.#reflectors.map((reflector) => reflector.synced()));
  }

  /** How each kind is followed. */
  status(): SourceStatus[] {
    return this.#reflectors.map(({ name, state, problem }) => ({ resource: name, state, problem }));
  }

  async close(): Promise<void> {
    await Promise.all(this.#reflectors.map((reflector) => reflector.close()));
  }

  #reflector(
    { kind, namespace, fieldSelector }: Followed,
    deps: ReflectorDeps,
  ): Reflector<KubeObject> {
    const { group, version, plural, namespaced } = kindResources[kind];
    return new Reflector<KubeObject>(
      {
        resource: { group, versions: [version], plural, namespaced },
        kind,
        ...(namespace === undefined ? {} : { namespace }),
        ...(fieldSelector === undefined ? {} : { fieldSelector }),
        reduce: (object) => reduce(kind, object),
        sink: {
          keys: () => this.#tables.keys(kind),
          apply: (changes) => this.#apply(kind, changes),
        },
      },
      deps,
    );
  }

  #apply(kind: Kind, reflected: readonly ReflectedChange<KubeObject>[]): void {
    const changes: ObjectChange[] = [];
    for (const { key, object } of reflected) {
      const before = this.#tables.get(kind, key) ?? null;
      // Most updates of an API server change nothing that is in use.
      if (before === object || (object !== null && isDeepStrictEqual(before, object))) continue;
      this.#tables.set(kind, key, object);
      changes.push({ before, after: object });
    }
    if (changes.length > 0) for (const listener of this.#listeners) listener(changes);
  }
}
