import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError } from '../../../lib/errors/mesh-error.ts';
import { POD_START_TIMEOUT_MS } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';
import type { StopOptions } from './leaving-pods.ts';
import type { ServedPod } from './served-pod.ts';
import { inTime } from '../../../lib/async/time-limit.ts';

/** Collaborators of {@link PodShares}. */
export interface PodSharesDeps {
  readonly clock: Clock;
  /** Puts the pod on this thread. Throws STATE_UNAVAILABLE when the thread cannot take it. */
  placeOn(pod: ServedPod, thread: number, netnsFd: number): PlacedPod;
  /** Returns another descriptor of the same namespace. */
  duplicate(netnsFd: number): number;
  closeFd(fd: number): void;
  /** Stops the pod on one of its threads and follows it to its end. */
  leave(pod: ServedPod, placed: PlacedPod, how: StopOptions): void;
  /** Tells the threads of a pod to divide its limits among them. */
  divide(uid: string, threads: readonly number[]): void;
}

/**
 * The further threads of pods whose first thread is saturated. Each has its own descriptor, so that every task can end without
 * the others. The kernel divides new connections among the threads; this class divides the pod's limits.
 */
export class PodShares {
  readonly #deps: PodSharesDeps;

  constructor(deps: PodSharesDeps) {
    this.#deps = deps;
  }

  /** Has the thread listen for the pod, too. When it rejects, nothing has changed. */
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

  /** Stops listening for the pod on the thread; its connections there end by themselves. */
  remove(pod: ServedPod, thread: number): void {
    for (const placed of pod.shares) {
      if (placed.thread !== thread) continue;
      pod.shares.delete(placed);
      this.#deps.leave(pod, placed, { mode: 'graceful', deadlineMs: Infinity });
    }
    this.#divide(pod);
  }

  /** Stops the pod on all its further threads. */
  stop(pod: ServedPod, how: StopOptions): void {
    for (const placed of pod.shares) this.#deps.leave(pod, placed, how);
    pod.shares.clear();
  }

  #divide(pod: ServedPod): void {
    this.#deps.divide(pod.info.uid, pod.threads);
  }
}
