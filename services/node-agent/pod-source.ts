import type { PodRecord } from '../../lib/state/pod-record.ts';

/** The pods of a node at one moment. */
export interface PodSet {
  readonly pods: ReadonlyMap<string, PodRecord>;
  /** Pods that are known to exist but whose record cannot be read and never could: they are left as they are. */
  readonly unreadable: ReadonlySet<string>;
}

/** Who knows the pods of this node. */
export interface PodSource {
  /** Starts looking; `onPods` is called with the first complete set and after every change. */
  start(onPods: (set: PodSet) => void): Promise<void>;
  close(): void;
}
