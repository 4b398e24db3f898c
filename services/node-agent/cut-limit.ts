import type { Clock } from '../../lib/clock/clock.ts';
import { CUT_SHARE, CUT_WINDOW_MS } from './limits.ts';

/** The node's pods of the mesh. */
export interface NodeShare {
  readonly pods: number;
  /** The uids of those that are cut off now. */
  readonly cut: readonly string[];
}

/** Bounds how many pods of the node are cut off, so that a fault of the agent or of the kernel does not take all of them at once. */
export class CutLimit {
  readonly #clock: Pick<Clock, 'monotonic'>;
  /** Times of the cuts within the window, by the uid of the pod. */
  #recent: ReadonlyMap<string, number> = new Map();

  constructor(clock: Pick<Clock, 'monotonic'>) {
    this.#clock = clock;
  }

  /** Returns whether this pod may be cut off now, and counts that. A pod that counts already may. */
  allow(uid: string, { pods, cut }: NodeShare): boolean {
    const nowMs = this.#clock.monotonic();
    this.#recent = new Map([...this.#recent].filter(([, atMs]) => nowMs - atMs < CUT_WINDOW_MS));
    const counted = new Set([...this.#recent.keys(), ...cut]);
    const most = Math.max(1, Math.floor(pods * CUT_SHARE));
    if (!counted.has(uid) && counted.size >= most) return false;
    this.count(uid);
    return true;
  }

  /** Counts a cut of this pod, which an agent before this one has made, as one of this moment. */
  count(uid: string): void {
    this.#recent = new Map([...this.#recent, [uid, this.#clock.monotonic()]]);
  }
}
