/** Pure decisions of the pod runtime. */
import { present } from '../../lib/errors/assert.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { PodPhase } from './manifest-api.ts';
import type { NamespaceObject, PodObject } from './objects.ts';
import type { ContainerState } from './pod-container.ts';
import type { PodSandbox } from './pod-namespaces.ts';
import type { SamplePod } from './sample-server.ts';
import { netnsPath } from './namespaces.ts';
import { MAX_PODS_PER_NODE } from './topology.ts';

/** The label that puts a namespace or pod into the mesh, and its value. */
const MODE_LABEL = 'istio.io/dataplane-mode';
/** Set on a pod once it is enrolled (docs/spec/cni.md). */
const REDIRECTION_ANNOTATION = 'ambient.istio.io/redirection';
/** The ports of a container that names none. */
const DEFAULT_PORTS = [{ port: 8_080, protocol: 'http' }] as const;

/** Whether the pod's labels put it into the mesh. */
export function wantsEnrolment(pod: PodObject, namespace: NamespaceObject | undefined): boolean {
  if (pod.spec.hostNetwork) return false;
  const mode = pod.metadata.labels[MODE_LABEL] ?? namespace?.metadata.labels[MODE_LABEL];
  return mode === 'ambient';
}

/** Whether the control plane has marked the pod as enrolled. */
export function isEnrolled(pod: PodObject): boolean {
  return pod.metadata.annotations[REDIRECTION_ANNOTATION] === 'enabled';
}

/** The place of a pod. */
export interface PodPlace {
  readonly node: string;
  /** Path of the file that holds its network namespace. */
  readonly netns: string;
  readonly addresses: readonly string[];
}

/** The place of a sandbox's pod. */
export function placeOf({ node, netns, addresses }: PodSandbox): PodPlace {
  return {
    node: node.name,
    netns: netnsPath(netns),
    addresses: [addresses.ipv4, addresses.ipv6],
  };
}

/** The pod's record for the node agent. */
export function podRecord(
  pod: PodObject,
  namespace: NamespaceObject | undefined,
  { node, netns, addresses }: PodPlace,
): PodRecord {
  return {
    uid: pod.metadata.uid,
    namespace: pod.metadata.namespace,
    name: pod.metadata.name,
    serviceAccount: pod.spec.serviceAccountName,
    node,
    netns,
    addresses: [...addresses],
    labels: pod.metadata.labels,
    annotations: pod.metadata.annotations,
    namespaceLabels: namespace?.metadata.labels ?? {},
    hostNetwork: pod.spec.hostNetwork,
  };
}

/**
 * The pod's part of the node's sample server; null when every container has its own command. Ports are HTTP unless
 * their name begins with `tcp` or `db`, as service ports choose a protocol by name.
 */
export function samplePod(pod: PodObject, sandbox: PodSandbox): SamplePod | null {
  const served = pod.spec.containers.filter((container) => container.command.length === 0);
  if (served.length === 0 && pod.spec.containers.length > 0) return null;
  const ports = served.flatMap((container) =>
    container.ports.map(({ name, containerPort }) => ({
      port: containerPort,
      protocol: /^(?:tcp|db)/.test(name) ? ('greeting' as const) : ('http' as const),
    })),
  );
  return {
    uid: pod.metadata.uid,
    name: pod.metadata.name,
    netns: netnsPath(sandbox.netns),
    ports: ports.length === 0 ? [...DEFAULT_PORTS] : ports,
  };
}

/** A text of the fields that cannot change in a running pod; another value needs a new sandbox. */
export function sandboxKey(pod: PodObject): string {
  const { nodeName, hostNetwork, restartPolicy, containers } = pod.spec;
  return JSON.stringify([pod.metadata.uid, nodeName, hostNetwork, restartPolicy, containers]);
}

/** Phase and readiness from the containers' states; `serving` is whether the default server serves the pod. */
export function podPhase(
  states: readonly ContainerState[],
  serving: boolean,
): { readonly phase: PodPhase; readonly ready: boolean } {
  const ended = states.filter((state) => state === 'succeeded' || state === 'failed');
  if (states.length > 0 && ended.length === states.length) {
    return { phase: ended.includes('failed') ? 'Failed' : 'Succeeded', ready: false };
  }
  const running = states.every((state) => state === 'running');
  return { phase: running && serving ? 'Running' : 'Pending', ready: running && serving };
}

/** Hands out pod slots of one node. A returned slot is reused last. */
export class SlotPool {
  readonly #used = new Set<number>();
  #next = 0;

  /** A free slot; null when the node is full. */
  take(): number | null {
    if (this.#used.size >= MAX_PODS_PER_NODE) return null;
    while (this.#used.has(this.#next)) this.#next = (this.#next + 1) % MAX_PODS_PER_NODE;
    const slot = this.#next;
    this.#used.add(slot);
    this.#next = (slot + 1) % MAX_PODS_PER_NODE;
    return slot;
  }

  give(slot: number): void {
    this.#used.delete(slot);
  }

  /** Number of taken slots. */
  get size(): number {
    return this.#used.size;
  }
}

/** Counts the pods of each node, including those that have not started. */
export function nodeLoads(nodes: Iterable<string>, pods: Iterable<PodObject>): Map<string, number> {
  const loads = new Map([...nodes].map((node) => [node, 0]));
  for (const { spec } of pods) {
    const load = loads.get(spec.nodeName);
    if (load !== undefined) loads.set(spec.nodeName, load + 1);
  }
  return loads;
}

/** The node with the fewest pods, for a pod that names none. */
export function pickNode(loads: ReadonlyMap<string, number>): string {
  const sorted = [...loads].sort(([, a], [, b]) => a - b);
  return present(sorted[0], 'a mesh has at least one node')[0];
}
