import { Backoff } from '../../../lib/clock/backoff.ts';
import type { Timer } from '../../../lib/clock/clock.ts';
import type { PodInfo } from '../../../workers/listener/protocol.ts';
import { REPLACE_BACKOFF } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';

/** Which network namespace a descriptor holds. */
export interface NetnsIdentity {
  readonly inode: string;
  readonly device: string;
}

/** A pod this process is to serve, with the descriptor it owns. */
export class ServedPod {
  readonly info: PodInfo;
  readonly netnsFd: number;
  readonly netns: NetnsIdentity;
  /** Grows while a pod's thread keeps failing it. */
  readonly backoff = new Backoff(REPLACE_BACKOFF);
  /** `Pending` until the listeners listen, and again while they do not. */
  state: 'Pending' | 'Up' = 'Pending';
  /** Null while it is on no thread. */
  placed: PlacedPod | null = null;
  /** Further threads that listen for it, oldest first. */
  readonly shares = new Set<PlacedPod>();
  /** The last task that was given the descriptor. */
  holder: PlacedPod | null = null;
  /** The re-placement after its thread failed it. */
  retry: Timer | null = null;
  upSinceMs = 0;

  constructor(info: PodInfo, netnsFd: number, netns: NetnsIdentity) {
    this.info = info;
    this.netnsFd = netnsFd;
    this.netns = netns;
  }

  /** True when the descriptor's namespace is this one. */
  isIn(netns: NetnsIdentity): boolean {
    return netns.inode === this.netns.inode && netns.device === this.netns.device;
  }

  /** The threads that listen for it, the one it was placed on first. */
  get threads(): readonly number[] {
    const placed = this.placed === null ? [] : [this.placed];
    return [...placed, ...this.shares].map(({ thread }) => thread);
  }

  cancelRetry(): void {
    this.retry?.cancel();
    this.retry = null;
  }
}
