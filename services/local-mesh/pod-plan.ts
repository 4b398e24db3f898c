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
/** What a container without ports serves. */
const DEFAULT_PORTS = [{ port: 8_080, protocol: 'http' }] as const;

/** Whether the pod is meant to be in the mesh. */
export function wantsEnrolment(pod: PodObject, namespace: NamespaceObject | undefined): boolean {
  if (pod.spec.hostNetwork) return false;
  const mode = pod.metadata.labels[MODE_LABEL] ?? namespace?.metadata.labels[MODE_LABEL];
  return mode === 'ambient';
}

/** Whether the control plane has seen the pod enrolled. */
export function isEnrolled(pod: PodObject): boolean {
  return pod.metadata.annotations[REDIRECTION_ANNOTATION] === 'enabled';
}

/** Where a pod runs. */
export interface PodPlace {
  readonly node: string;
  /** Path of a file that holds its network namespace. */
  readonly netns: string;
  readonly addresses: readonly string[];
}

/** Where the pod of a sandbox runs. */
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
 * What the node's sample server does for the pod, or null when every container has a command of its own. Ports
 * are HTTP unless their name begins with `tcp` or `db`, as service ports choose a protocol by name.
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

/** What must not change in a running pod; another value means a new sandbox. */
export function sandboxKey(pod: PodObject): string {
  const { nodeName, hostNetwork, restartPolicy, containers } = pod.spec;
  return JSON.stringify([pod.metadata.uid, nodeName, hostNetwork, restartPolicy, containers]);
}

/** Phase and readiness from the containers' states; `serving` is whether the default server does its part. */
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

/** Hands out pod slots of one node. A slot given back is the last to be used again. */
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

  /** How many slots are taken. */
  get size(): number {
    return this.#used.size;
  }
}

/** How many pods each of the nodes has, pods that are not started yet included. */
export function nodeLoads(nodes: Iterable<string>, pods: Iterable<PodObject>): Map<string, number> {
  const loads = new Map([...nodes].map((node) => [node, 0]));
  for (const { spec } of pods) {
    const load = loads.get(spec.nodeName);
    if (load !== undefined) loads.set(spec.nodeName, load + 1);
  }
  return loads;
}

/** The least loaded node, for a pod that names none. */
export function pickNode(loads: ReadonlyMap<string, number>): string {
  const sorted = [...loads].sort(([, a], [, b]) => a - b);
  return present(sorted[0], 'a mesh has at least one node')[0];
}
