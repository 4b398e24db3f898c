/** Follows the pods of one node at the API server. */
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import type { KubernetesClient } from '../../../lib/kubernetes/client.ts';
import type { Labels } from '../../../lib/kubernetes/label-selector.ts';
import type { ReflectorMetrics } from '../../../lib/kubernetes/reflection.ts';
import { Reflector } from '../../../lib/kubernetes/reflector.ts';
import { resourcePath } from '../../../lib/kubernetes/resource.ts';
import { NAMESPACES, PODS } from '../../../lib/kubernetes/resources.ts';
import { ifPresent } from '../../../lib/kubernetes/status.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodRecord } from '../../../lib/state/pod-record.ts';
import type { FindOptions, PodNetwork, PodSet, PodSource } from '../pod-source.ts';
import { reducePod } from './pod.ts';
import type { KubernetesPod } from './pod.ts';

/** Collaborators of {@link KubernetesPods}. */
export interface KubernetesPodsDeps {
  readonly client: KubernetesClient;
  readonly clock: Clock;
  readonly log: Pick<Logger, 'debug' | 'info' | 'warn'>;
  readonly metrics: ReflectorMetrics;
  readonly node: string;
  readonly supervise: (work: Promise<void>) => void;
  /** Called when the annotation of a pod changed. */
  readonly onRedirection: (pod: KubernetesPod) => void;
}

interface MadeRecord {
  readonly pod: KubernetesPod;
  readonly namespaceLabels: Labels;
  readonly network: PodNetwork | null;
  readonly record: PodRecord;
}

/** Time in which changes are gathered before the set is told. */
const SETTLE_MS = 5;

const namespaceSchema = z.object({
  metadata: z.object({ name: z.string(), labels: z.record(z.string(), z.string()).default({}) }),
});
const placedSchema = z.object({ spec: z.object({ nodeName: z.string().default('') }) });

/**
 * Tells the pods that have an address and have not ended. A pod whose Namespace is not known yet counts as unreadable. While
 * the API server is away the pods stay as they are.
 */
export class KubernetesPods implements PodSource {
  readonly #deps: KubernetesPodsDeps;
  /** By `namespace/name`. */
  readonly #pods = new Map<string, KubernetesPod>();
  readonly #byUid = new Map<string, KubernetesPod>();
  readonly #namespaces = new Map<string, Labels>();
  /** By uid, while the pod exists. */
  readonly #networks = new Map<string, PodNetwork>();
  /** Uids of the pods that the plugin asked about, while the pod exists. */
  readonly #asked = new Set<string>();
  /** Questions to the API server that are under way, and whether the watch told meanwhile that the pod is gone. */
  readonly #questions = new Set<{ readonly key: string; isGone: boolean }>();
  #records = new Map<string, MadeRecord>();
  readonly #reflectors: readonly Reflector<unknown>[];
  #onPods: ((set: PodSet) => void) | null = null;
  #soon: Timer | null = null;

  constructor(deps: KubernetesPodsDeps) {
    this.#deps = deps;
    const pods = new Reflector<KubernetesPod>(
      {
        resource: PODS,
        kind: 'Pod',
        fieldSelector: `spec.nodeName=${deps.node}`,
        reduce: reducePod,
        sink: {
          keys: () => this.#pods.keys(),
          apply: (changes) => {
            for (const { key, object } of changes) this.#put(key, object);
            this.#changed();
          },
        },
      },
      deps,
    );
    const namespaces = new Reflector<Labels>(
      {
        resource: NAMESPACES,
        kind: 'Namespace',
        reduce: (object) => namespaceSchema.parse(object).metadata.labels,
        sink: {
          keys: () => this.#namespaces.keys(),
          apply: (changes) => {
            for (const { key, object } of changes) {
              if (object === null) this.#namespaces.delete(key);
              else if (!isDeepStrictEqual(this.#namespaces.get(key), object)) {
                this.#namespaces.set(key, object);
              }
            }
            this.#changed();
          },
        },
      },
      deps,
    );
    this.#reflectors = [pods, namespaces];
  }

  /** Begins to follow. Resolves at once; the first set is told when both lists are complete. */
  start(onPods: (set: PodSet) => void): Promise<void> {
    for (const reflector of this.#reflectors) this.#deps.supervise(reflector.run());
    const complete = Promise.all(this.#reflectors.map((reflector) => reflector.synced()));
    this.#deps.supervise(
      complete.then(() => {
        this.#onPods = onPods;
        this.#tell();
      }),
    );
    return Promise.resolve();
  }

  /** The problem of each list or watch that does not work now. */
  get problems(): readonly string[] {
    return this.#reflectors.flatMap(({ problem }) => problem ?? []);
  }

  async close(): Promise<void> {
    this.#soon?.cancel();
    this.#onPods = null;
    await Promise.all(this.#reflectors.map((reflector) => reflector.close()));
  }

  /** The uids of the pods that started after this time and that the plugin never asked about. */
  uncalled(sinceMs: number): ReadonlySet<string> {
    const pods = [...this.#pods.values()].filter(
      ({ uid, startedAtMs, addresses }) =>
        // It has addresses once the plugins of the runtime are through.
        addresses.length > 0 && (startedAtMs ?? 0) > sinceMs && !this.#asked.has(uid),
    );
    return new Set(pods.map(({ uid }) => uid));
  }

  /** The pod of that uid; null when none is known. */
  byUid(uid: string): KubernetesPod | null {
    return this.#byUid.get(uid) ?? null;
  }

  /**
   * Finds a pod that the container runtime is starting, and asks the API server when its event has not come yet, or `fresh`. Null
   * when there is none on this node, or when the watch still tells an earlier one of its name. Notes that the plugin asked
   * about the pod. Throws KUBERNETES_UNAVAILABLE when nobody can tell.
   */
  async find(
    namespace: string,
    name: string,
    network: PodNetwork,
    { fresh = false, signal }: FindOptions = {},
  ): Promise<PodRecord | null> {
    const known = fresh ? undefined : this.#pods.get(`${namespace}/${name}`);
    const pod = known ?? (await this.#ask(namespace, name, signal));
    if (pod === null) return null;
    this.#asked.add(pod.uid);
    const labels = this.#namespaces.get(namespace) ?? (await this.#askLabels(namespace, signal));
    return labels === null ? null : recordOf(pod, this.#deps.node, labels, network);
  }

  /** Sets the network of a pod that the runtime is starting, and tells the pod at once. */
  place(uid: string, network: PodNetwork): void {
    this.#networks.set(uid, network);
    if (this.#onPods === null) {
      throw new MeshError('KUBERNETES_UNAVAILABLE', 'the pods of this node are not known yet');
    }
    this.#tell();
  }

  async #ask(namespace: string, name: string, signal?: AbortSignal): Promise<KubernetesPod | null> {
    const key = `${namespace}/${name}`;
    const question = { key, isGone: false };
    this.#questions.add(question);
    let object: unknown;
    try {
      const path = resourcePath(PODS, { namespace, name });
      object = await ifPresent(this.#deps.client.get(path, signal && { signal }));
    } finally {
      this.#questions.delete(question);
    }
    if (object === null || placedSchema.parse(object).spec.nodeName !== this.#deps.node)
      return null;
    const pod = reducePod(object);
    const known = this.#pods.get(key);
    if (known !== undefined) return known.uid === pod.uid ? known : null;
    // Nothing would tell again that this pod is gone, and the answer may be about another one of its name.
    if (question.isGone) {
      throw new MeshError(
        'KUBERNETES_UNAVAILABLE',
        `pod ${key} was deleted while the API server was asked for it`,
      );
    }
    // The watch began earlier, so it will also tell when this pod is gone.
    this.#put(key, pod);
    return pod;
  }

  async #askLabels(name: string, signal?: AbortSignal): Promise<Labels | null> {
    const path = resourcePath(NAMESPACES, { name });
    const object = await ifPresent(this.#deps.client.get(path, signal && { signal }));
    if (object === null) return null;
    const { labels } = namespaceSchema.parse(object).metadata;
    if (!this.#namespaces.has(name)) this.#namespaces.set(name, labels);
    return labels;
  }

  #put(key: string, pod: KubernetesPod | null): void {
    const before = this.#pods.get(key);
    if (before !== undefined && before.uid !== pod?.uid) {
      this.#networks.delete(before.uid);
      this.#byUid.delete(before.uid);
      this.#asked.delete(before.uid);
    }
    if (pod === null) {
      this.#pods.delete(key);
      for (const question of this.#questions) question.isGone ||= question.key === key;
    } else if (!isDeepStrictEqual(before, pod)) {
      this.#pods.set(key, pod);
      this.#byUid.set(pod.uid, pod);
      if (before?.redirection !== pod.redirection) this.#deps.onRedirection(pod);
      // A new sandbox has a new namespace; the plugin's word was about the old one.
      if (before?.containers !== pod.containers && before?.containers) {
        this.#networks.delete(pod.uid);
      }
    }
  }

  #changed(): void {
    if (this.#onPods === null || this.#soon !== null) return;
    this.#soon = this.#deps.clock.after(SETTLE_MS, () => {
      this.#soon = null;
      this.#tell();
    });
  }

  #tell(): void {
    const records = new Map<string, MadeRecord>();
    const unreadable = new Set<string>();
    for (const pod of this.#pods.values()) {
      if (pod.ended) continue;
      const network = this.#networks.get(pod.uid) ?? null;
      const namespaceLabels = this.#namespaces.get(pod.namespace);
      if (namespaceLabels === undefined) unreadable.add(pod.uid);
      else if (network !== null || pod.addresses.length > 0) {
        records.set(pod.uid, this.#made(pod, namespaceLabels, network));
      }
    }
    this.#records = records;
    const pods = new Map([...records].map(([uid, { record }]) => [uid, record]));
    this.#onPods?.({ pods, unreadable });
  }

  /** Returns the record as it was when nothing of it changed. */
  #made(pod: KubernetesPod, namespaceLabels: Labels, network: PodNetwork | null): MadeRecord {
    const before = this.#records.get(pod.uid);
    const same =
      before !== undefined &&
      before.network === network &&
      before.namespaceLabels === namespaceLabels &&
      isDeepStrictEqual(recorded(before.pod), recorded(pod));
    if (same) return before;
    const record = recordOf(pod, this.#deps.node, namespaceLabels, network);
    return { pod, namespaceLabels, network, record };
  }
}

/** Leaves out what no record tells. */
function recorded(pod: KubernetesPod): KubernetesPod {
  return { ...pod, redirection: null, startedAtMs: null };
}

function recordOf(
  pod: KubernetesPod,
  node: string,
  namespaceLabels: Labels,
  network: PodNetwork | null,
): PodRecord {
  const { uid, namespace, name, serviceAccount, labels, annotations, hostNetwork } = pod;
  const identity = { uid, namespace, name, serviceAccount, node };
  return {
    ...identity,
    netns: network?.netns ?? null,
    addresses: [...(pod.addresses.length > 0 ? pod.addresses : (network?.addresses ?? []))],
    labels: { ...labels },
    annotations: { ...annotations },
    namespaceLabels: { ...namespaceLabels },
    hostNetwork,
  };
}
