/** The pods the CA knows of: who may ask for which identity hangs on where pods run. */
import { z } from 'zod';
import { MeshError } from '../../lib/errors/mesh-error.ts';

/** A pod, as far as the CA cares. */
export interface KnownPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly serviceAccount: string;
  /** Empty while the pod is not scheduled. */
  readonly node: string;
  readonly failed: boolean;
}

/** Where pods run. */
export interface PodRegistry {
  /** False until the pods were known once; nothing may be granted before. */
  readonly synced: boolean;
  /** True when a pod that has not failed runs on the node under this account (docs/spec/istiod-ambient.md §4.2). */
  runsOnNode(node: string, namespace: string, serviceAccount: string): boolean;
  /** The pod of this name and uid; null when there is none. */
  find(namespace: string, name: string, uid: string): KnownPod | null;
}

const kubernetesPod = z.object({
  metadata: z.object({ namespace: z.string(), name: z.string(), uid: z.string() }),
  spec: z.object({
    serviceAccountName: z.string().default('default'),
    nodeName: z.string().default(''),
  }),
  status: z.object({ phase: z.string().default('Pending') }).default({ phase: 'Pending' }),
});

/** A pod from its Kubernetes form. Throws STATE_INVALID that names the field for anything else. */
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

/** Pods by name, with the index that {@link PodRegistry.runsOnNode} needs. */
export class PodTable {
  readonly #pods = new Map<string, KnownPod>();
  /** How many pods that have not failed run under an account on a node. */
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

  /** Harmless for an unknown pod. */
  remove(namespace: string, name: string): void {
    const key = `${namespace}/${name}`;
    const pod = this.#pods.get(key);
    if (pod === undefined) return;
    this.#pods.delete(key);
    this.#count(pod, -1);
  }

  /** Holds exactly these pods from now on. */
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

  /** Everything, in no order. */
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

/** None of the parts can hold a slash. */
function placeKey(node: string, namespace: string, serviceAccount: string): string {
  return `${node}/${namespace}/${serviceAccount}`;
}
