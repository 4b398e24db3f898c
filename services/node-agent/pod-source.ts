import type { PodRecord } from '../../lib/state/pod-record.ts';

/** The pods of a node at one moment. */
export interface PodSet {
  readonly pods: ReadonlyMap<string, PodRecord>;
  /** Pods that exist but never had a readable record; they are left as they are. */
  readonly unreadable: ReadonlySet<string>;
}

/** The network of a new pod, as the CNI plugin tells it before anybody else does. */
export interface PodNetwork {
  readonly netns: string;
  readonly addresses: readonly string[];
}

/** How a pod that the runtime is starting is looked up. */
export interface FindOptions {
  /** True where only its name is known: what is remembered may be about an earlier pod of that name. */
  readonly fresh?: boolean;
  /** Ends the look-up, which rejects with the reason. */
  readonly signal?: AbortSignal;
}

/** Tells which pods run on the node. */
export interface PodSource {
  /** Begins. Calls `onPods` with the first complete set and after every change. A record changes only by being replaced. */
  start(onPods: (set: PodSet) => void): Promise<void>;
  /** Returns a pod that the runtime is starting; null when there is none on this node. Rejects with a MeshError when nobody can tell. */
  find(
    namespace: string,
    name: string,
    network: PodNetwork,
    options?: FindOptions,
  ): Promise<PodRecord | null>;
  /** Sets the network of a pod that the runtime is starting, and tells the pod at once. */
  place(uid: string, network: PodNetwork): void;
  close(): Promise<void> | void;
}
