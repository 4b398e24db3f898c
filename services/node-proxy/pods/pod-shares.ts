import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { POD_START_TIMEOUT_MS } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';
import type { StopOptions } from './leaving-pods.ts';
import type { ServedPod } from './served-pod.ts';
import { inTime } from '../../../lib/async/time-limit.ts';

/** What sharing a pod needs from the process. */
export interface PodSharesDependencies {
  readonly clock: Clock;
  /** Puts the pod on this very thread. Throws STATE_UNAVAILABLE when it cannot take it. */
  placeOn(pod: ServedPod, thread: number, netnsFd: number): PlacedPod;
  /** Another descriptor of the same namespace. */
  duplicate(netnsFd: number): number;
  closeFd(fd: number): void;
  /** Stops the pod on one of its threads and sees to its end. */
  leave(pod: ServedPod, placed: PlacedPod, how: StopOptions): void;
  /** Tells the threads of a pod that its limits are divided among them. */
  divide(uid: string, threads: readonly number[]): void;
}

/**
 * The further threads of pods whose own one is saturated. Each has a descriptor of its own, so that every task may end on its
 * own; new connections are divided by the kernel, and the pod's limits by us.
 */
export class PodShares {
  readonly #deps: PodSharesDependencies;

  constructor(deps: PodSharesDependencies) {
    this.#deps = deps;
  }

  /** Has the thread listen for the pod, too. Rejects when it cannot; everything is then as before. */
  async add(pod: ServedPod, thread: number): Promise<void> {
    const { clock, duplicate, closeFd, placeOn } = this.#deps;
    const fd = duplicate(pod.netnsFd);
    let placed: PlacedPod;
    try {
      placed = placeOn(pod, thread, fd);
    } catch (error) {
      closeFd(fd);
      throw error;
    }
    void placed.ended.then(() => {
      closeFd(fd);
      if (pod.shares.delete(placed)) this.#divide(pod);
    });
    try {
      if (!(await inTime(clock, POD_START_TIMEOUT_MS, placed.listening))) {
        throw new MeshError('ACTOR_DEADLINE', `not listening after ${POD_START_TIMEOUT_MS} ms`);
      }
      if (pod.placed === null) throw new MeshError('STATE_UNAVAILABLE', 'the pod left meanwhile');
    } catch (error) {
      placed.stop('immediate', 0);
      throw error;
    }
    pod.shares.add(placed);
    this.#divide(pod);
  }

  /** Has the thread listen for the pod no more; what it carries ends by itself. */
  remove(pod: ServedPod, thread: number): void {
    for (const placed of pod.shares) {
      if (placed.thread !== thread) continue;
      pod.shares.delete(placed);
      this.#deps.leave(pod, placed, { mode: 'graceful', deadlineMs: Infinity });
    }
    this.#divide(pod);
  }

  /** The pod goes, with all its threads. */
  stop(pod: ServedPod, how: StopOptions): void {
    for (const placed of pod.shares) this.#deps.leave(pod, placed, how);
    pod.shares.clear();
  }

  #divide(pod: ServedPod): void {
    this.#deps.divide(pod.info.uid, pod.threads);
  }
}
