import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { POD_DRAIN_GRACE_MS, POD_STOP_TIMEOUT_MS } from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';
import type { NetnsIdentity, ServedPod } from './served-pod.ts';
import { inTime } from '../../../lib/async/time-limit.ts';

/** Collaborators of {@link LeavingPods}. */
export interface LeavingPodsDeps {
  readonly clock: Clock;
  readonly log: Logger;
  closeFd(fd: number): void;
}

/** Says how a pod's listeners and connections end. */
export interface StopOptions {
  readonly mode: 'immediate' | 'graceful';
  /** Connections are cut after this time; `Infinity` lets them end by themselves. */
  readonly deadlineMs: number;
}

interface Leaving {
  readonly pod: ServedPod;
  readonly placed: PlacedPod;
}

/** Pods that were told to stop, and still hold a thread, a descriptor and perhaps connections. */
export class LeavingPods {
  readonly #deps: LeavingPodsDeps;
  readonly #leaving = new Set<Leaving>();

  constructor(deps: LeavingPodsDeps) {
    this.#deps = deps;
  }

  /**
   * Stops the pod on one of its threads and follows it to its end. An end that takes too long is forced, then logged.
   * `closes` says that the pod's descriptor is closed at the end.
   */
  add(
    pod: ServedPod,
    placed: PlacedPod,
    { mode, deadlineMs, closes }: StopOptions & { readonly closes: boolean },
  ): void {
    const leaving: Leaving = { pod, placed };
    this.#leaving.add(leaving);
    placed.stop(mode, deadlineMs);
    this.#deps.log.info(
      { uid: pod.info.uid, mode, deadlineMs: Math.round(deadlineMs) },
      'pod.stopping',
    );
    const patienceMs = (mode === 'graceful' ? deadlineMs : 0) + POD_DRAIN_GRACE_MS;
    const timer = this.#forceLater(leaving, patienceMs);
    void placed.ended.then((error) => {
      timer.cancel();
      this.#leaving.delete(leaving);
      if (closes) this.#deps.closeFd(pod.netnsFd);
      this.#deps.log.info({ uid: pod.info.uid, error: error?.message }, 'pod.stopped');
    });
  }

  /** Cancel the returned timer when the pod has ended: the timer keeps the pod in memory. */
  #forceLater({ pod, placed }: Leaving, patienceMs: number): Timer {
    const { clock, log } = this.#deps;
    let timer = clock.after(patienceMs, () => {
      placed.stop('immediate', 0);
      timer = clock.after(POD_STOP_TIMEOUT_MS, () => {
        log.error({ uid: pod.info.uid }, 'pod.stuck');
      });
    });
    return { cancel: () => timer.cancel() };
  }

  /** Gives pods of this uid at most this long from now on, also when they had more. */
  shorten(uid: string, deadlineMs: number): void {
    for (const { placed } of this.#of(uid)) placed.stop('graceful', deadlineMs);
  }

  /** Uids of the pods that are leaving. */
  get uids(): ReadonlySet<string> {
    return new Set([...this.#leaving].map(({ pod }) => pod.info.uid));
  }

  /** Returns the threads that still hold a pod of this uid. */
  threadsOf(uid: string): ReadonlySet<number> {
    return new Set(this.#of(uid).map(({ placed }) => placed.thread));
  }

  /** Ends pods of this uid that are in another namespace than `netns`, and waits up to {@link POD_STOP_TIMEOUT_MS} for them. */
  async settle(uid: string, netns: NetnsIdentity): Promise<void> {
    await this.#end(this.#of(uid).filter(({ pod }) => !pod.isIn(netns)));
  }

  /** Ends all pods of this uid now, and waits up to {@link POD_STOP_TIMEOUT_MS} for them. */
  async cut(uid: string): Promise<void> {
    await this.#end(this.#of(uid));
  }

  /** Ends all pods now. */
  stopNow(): void {
    for (const { placed } of this.#leaving) placed.stop('immediate', 0);
  }

  /** Resolves when no pod is leaving. */
  async allGone(): Promise<void> {
    await Promise.all([...this.#leaving].map(({ placed }) => placed.ended));
  }

  #of(uid: string): Leaving[] {
    return [...this.#leaving].filter(({ pod }) => pod.info.uid === uid);
  }

  async #end(leaving: readonly Leaving[]): Promise<void> {
    for (const { placed } of leaving) placed.stop('immediate', 0);
    const ended = Promise.all(leaving.map(({ placed }) => placed.ended));
    await inTime(this.#deps.clock, POD_STOP_TIMEOUT_MS, ended);
  }
}
