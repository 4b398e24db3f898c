/** The pods that the CA knows: a node gets only the identities of pods that run on it. */
import * as z from 'zod';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** The fields of a pod that the CA needs. */
export interface KnownPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly serviceAccount: string;
  /** Empty while the pod is not scheduled. */
  readonly node: string;
  readonly failed: boolean;
}

/** Answers questions about pods. */
export interface PodRegistry {
  /** False before the first list of pods; nodes are granted nothing until then. */
  readonly synced: boolean;
  /** Returns true when a pod that has not failed runs on the node under this account (docs/spec/istiod-ambient.md §4.2). */
  runsOnNode(node: string, namespace: string, serviceAccount: string): boolean;
  /** Returns the pod of this name and uid; null when there is none. */
  find(namespace: string, name: string, uid: string): KnownPod | null;
}

/** Pods that are followed. */
export interface FollowedPods extends PodRegistry {
  /** True while changes come as they happen. */
  readonly connected: boolean;
  /** The reason why the pods are not followed now; null when they are. */
  readonly problem: string | null;
}

const kubernetesPod = z.object({
  metadata: z.object({ namespace: z.string(), name: z.string(), uid: z.string() }),
  spec: z.object({
    serviceAccountName: z.string().default('default'),
    nodeName: z.string().default(''),
  }),
  status: z.object({ phase: z.string().default('Pending') }).default({ phase: 'Pending' }),
});

/** Parses a Kubernetes pod. Throws STATE_INVALID that names the wrong field. */
export function parsePod(object: unknown): KnownPod {
  const parsed = kubernetesPod.safeParse(object);
  if (!parsed.success) {
    const where = parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`);
    throw new MeshError('STATE_INVALID', `not a pod: ${where.join('; ')}`);
  }
  const { metadata, spec, status } = parsed.data;
  return {
    namespace: metadata.namespace,
    name: metadata.name,
    uid: metadata.uid,
    serviceAccount: spec.serviceAccountName,
    node: spec.nodeName,
    failed: status.phase === 'Failed',
  };
}

/** Pods by name, with an index for {@link PodRegistry.runsOnNode}. */
export class PodTable {
  readonly #pods = new Map<string, KnownPod>();
  /** Number of pods that have not failed, by node and account. */
  readonly #counts = new Map<string, number>();

  get size(): number {
    return this.#pods.size;
  }

  /** Adds the pod or replaces the one of the same name. */
  put(pod: KnownPod): void {
    this.remove(pod.namespace, pod.name);
    this.#pods.set(`${pod.namespace}/${pod.name}`, pod);
    this.#count(pod, 1);
  }

  /** The keys of all pods: `namespace/name`. */
  keys(): Iterable<string> {
    return this.#pods.keys();
  }

  /** Does nothing for an unknown pod. */
  remove(namespace: string, name: string): void {
    this.removeKey(`${namespace}/${name}`);
  }

  /** {@link remove} by the key. */
  removeKey(key: string): void {
    const pod = this.#pods.get(key);
    if (pod === undefined) return;
    this.#pods.delete(key);
    this.#count(pod, -1);
  }

  /** Replaces all pods. */
  replace(pods: Iterable<KnownPod>): void {
    this.#pods.clear();
    this.#counts.clear();
    for (const pod of pods) this.put(pod);
  }

  runsOnNode(node: string, namespace: string, serviceAccount: string): boolean {
    return (this.#counts.get(placeKey(node, namespace, serviceAccount)) ?? 0) > 0;
  }

  find(namespace: string, name: string, uid: string): KnownPod | null {
    const pod = this.#pods.get(`${namespace}/${name}`);
    return pod?.uid === uid ? pod : null;
  }

  /** All pods, in no order. */
  all(): KnownPod[] {
    return [...this.#pods.values()];
  }

  #count(pod: KnownPod, step: number): void {
    if (pod.failed || pod.node === '') return;
    const key = placeKey(pod.node, pod.namespace, pod.serviceAccount);
    const count = (this.#counts.get(key) ?? 0) + step;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }
}

/** No part can contain a slash. */
function placeKey(node: string, namespace: string, serviceAccount: string): string {
  return `${node}/${namespace}/${serviceAccount}`;
}
