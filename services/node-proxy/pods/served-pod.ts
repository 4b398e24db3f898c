import { Backoff } from '../../../lib/clock/backoff.ts';
import type { Timer } from '../../../lib/clock/clock.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';
import { REPLACE_BACKOFF } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';

/** Identifies the network namespace of a descriptor. */
export interface NetnsIdentity {
  readonly inode: string;
  readonly device: string;
}

/** A pod that this process serves or should serve, with the descriptor that it owns. */
export class ServedPod {
  readonly info: PodInfo;
  readonly netnsFd: number;
  readonly netns: NetnsIdentity;
  /** Time between placements, which grows while threads lose the pod. */
  readonly backoff = new Backoff(REPLACE_BACKOFF);
  /** `Up` while the listeners listen, else `Pending`. */
  state: 'Pending' | 'Up' = 'Pending';
  /** Null while the pod is on no thread. */
  placed: PlacedPod | null = null;
  /** Further threads that listen for the pod, oldest first. */
  readonly shares = new Set<PlacedPod>();
  /** The last task that got the descriptor. */
  holder: PlacedPod | null = null;
  /** The next placement after a thread lost the pod. */
  retry: Timer | null = null;
  upSinceMs = 0;

  constructor(info: PodInfo, netnsFd: number, netns: NetnsIdentity) {
    this.info = info;
    this.netnsFd = netnsFd;
    this.netns = netns;
  }

  /** Returns true when the pod is in this namespace. */
  isIn(netns: NetnsIdentity): boolean {
    return netns.inode === this.netns.inode && netns.device === this.netns.device;
  }

  /** The threads that listen for the pod; the first is the one it was placed on. */
  get threads(): readonly number[] {
    const placed = this.placed === null ? [] : [this.placed];
    return [...placed, ...this.shares].map(({ thread }) => thread);
  }

  cancelRetry(): void {
    this.retry?.cancel();
    this.retry = null;
  }
}
