import { KeyedLock } from '../../../lib/async/keyed-lock.ts';
import { inTime } from '../../../lib/async/time-limit.ts';
import type { Timer } from '../../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';
import type { ListeningPod } from '../generation/handover.ts';
import {
  MAX_PODS,
  PENDING_RETRY_MS,
  POD_START_TIMEOUT_MS,
  POD_STOP_TIMEOUT_MS,
} from '../limits.ts';
import type { PlacedPod } from '../pool/placed-pod.ts';
import { LeavingPods } from './leaving-pods.ts';
import type { LeavingPodsDeps } from './leaving-pods.ts';
import { PodShares } from './pod-shares.ts';
import type { PodSharesDeps } from './pod-shares.ts';
import { ServedPod } from './served-pod.ts';
import type { NetnsIdentity } from './served-pod.ts';

/** A pod that was up this long before its thread lost it is placed again at once. */
const STABLE_AFTER_MS = 10_000;

/** Counters of pods (docs/spec/inpod.md §9). */
export interface PodCounters {
  started(): void;
  stopped(): void;
  /** A thread lost a pod that was up. */
  lost(): void;
}

/** Dependencies of the manager. */
export interface PodManagerDeps extends LeavingPodsDeps, Omit<PodSharesDeps, 'leave'> {
  readonly counters: PodCounters;
  /** How long connections of a removed pod may run on. */
  readonly podDrainMs: number;
  /** Puts the pod on a thread. Throws STATE_UNAVAILABLE when none can take it. */
  place(info: PodInfo, netnsFd: number, avoid: ReadonlySet<number>): PlacedPod;
  netnsIdentity(fd: number): NetnsIdentity;
  /** Is called when the pods changed, or whether all are up. */
  changed(): void;
}

/**
 * Serves the pods that the node agent names: places them on threads, and tries again when that fails. The manager owns the
 * descriptors given to {@link add}, also when `add` rejects.
 */
export class PodManager {
  readonly #deps: PodManagerDeps;
  readonly #pods = new Map<string, ServedPod>();
  readonly #leaving: LeavingPods;
  readonly #shares: PodShares;
  readonly #lock = new KeyedLock();
  readonly #retries: Timer;
  /** True from the end of the snapshot to the end of the session. */
  #synced = false;
  #closing = false;

  constructor(deps: PodManagerDeps) {
    this.#deps = deps;
    this.#leaving = new LeavingPods(deps);
    this.#shares = new PodShares({
      ...deps,
      leave: (pod, placed, how) => this.#leaving.add(pod, placed, { ...how, closes: false }),
    });
    this.#retries = deps.clock.every(PENDING_RETRY_MS, () => this.#retryPending());
  }

  /** Pods that are served or should be, by uid. */
  get pods(): ReadonlyMap<string, ServedPod> {
    return this.#pods;
  }

  /** Uids of pods that should be served and are not. */
  get pending(): readonly string[] {
    return [...this.#pods.values()]
      .filter((pod) => pod.state === 'Pending')
      .map((pod) => pod.info.uid);
  }

  /** True when a session has sent its snapshot and every pod is up (docs/spec/inpod.md §7). */
  get ready(): boolean {
    return this.#synced && this.pending.length === 0;
  }

  /** Yields the pods whose listeners are open. */
  *listening(): Generator<ListeningPod> {
    for (const pod of this.#pods.values()) {
      if (pod.state === 'Up') yield { netnsFd: pod.netnsFd, own: pod.threads.length };
    }
  }

  /** Has one more thread listen for the pod. Rejects when the pod is not up, or the thread cannot take it. */
  share(uid: string, thread: number): Promise<void> {
    return this.#lock.run(uid, async () => {
      const pod = this.#pods.get(uid);
      if (pod?.state !== 'Up') throw new MeshError('STATE_UNAVAILABLE', `pod ${uid} is not up`);
      await this.#shares.add(pod, thread);
    });
  }

  /** Stops listening for the pod on a further thread. */
  unshare(uid: string, thread: number): void {
    const pod = this.#pods.get(uid);
    if (pod !== undefined) this.#shares.remove(pod, thread);
  }

  /** Number of pods that leave: their listeners are closed, connections may run on. */
  get leaving(): number {
    return this.#leaving.uids.size;
  }

  /** A session with the node agent begins; its snapshot will name the pods to keep. */
  sessionOpened(): void {
    this.#synced = false;
    for (const [uid, pod] of this.#pods) {
      // The manager places a pod again when its thread died. The agent adds a pod again when it never started.
      if (pod.state === 'Pending' && pod.retry === null && pod.placed === null) {
        this.#pods.delete(uid);
        this.#releaseFd(pod);
      }
    }
    this.#deps.changed();
  }

  /** The session ended; the pods stay served. */
  sessionClosed(): void {
    this.#synced = false;
    this.#deps.changed();
  }

  /**
   * Serves the pod; resolves when its listeners listen. When it rejects, the pod stays pending and is tried again. A pod of
   * the same uid and namespace stays as it is; one in another namespace is replaced.
   */
  add(info: PodInfo, netnsFd: number): Promise<void> {
    return this.#lock.run(info.uid, () => this.#add(info, netnsFd));
  }

  /** Closes the pod's listeners at once; connections may run on until the drain deadline. Ignores unknown uids. */
  delete(uid: string): Promise<void> {
    return this.#lock.run(uid, async () => {
      const pod = this.#pods.get(uid);
      if (pod !== undefined) this.#retire(pod, 'graceful', this.#deps.podDrainMs);
      // When the process drains, the pod has the deadline of the process, which may be far away.
      this.#leaving.shorten(uid, this.#deps.podDrainMs);
    });
  }

  /** The agent has named all pods of the node: the others go. */
  snapshot(uids: ReadonlySet<string>): void {
    this.#synced = true;
    for (const [uid, pod] of this.#pods) {
      if (!uids.has(uid)) this.#retire(pod, 'graceful', this.#deps.podDrainMs);
    }
    for (const uid of this.#leaving.uids) {
      if (!uids.has(uid)) this.#leaving.shorten(uid, this.#deps.podDrainMs);
    }
    this.#deps.changed();
  }

  /** Drains all pods in parallel; resolves when they are gone or after `deadlineMs`. */
  async drain(deadlineMs: number): Promise<void> {
    this.#close();
    for (const pod of this.#pods.values()) this.#retire(pod, 'graceful', deadlineMs);
    await inTime(this.#deps.clock, deadlineMs, this.#leaving.allGone());
  }

  /** Ends all pods now, and waits up to {@link POD_STOP_TIMEOUT_MS} until they are gone. Idempotent. */
  async stop(): Promise<void> {
    this.#close();
    for (const pod of this.#pods.values()) this.#retire(pod, 'immediate', 0);
    this.#leaving.stopNow();
    await inTime(this.#deps.clock, POD_STOP_TIMEOUT_MS, this.#leaving.allGone());
  }

  #close(): void {
    this.#closing = true;
    this.#retries.cancel();
  }

  async #add(info: PodInfo, netnsFd: number): Promise<void> {
    const pod = this.#entry(info, netnsFd);
    if (pod.state === 'Up') return;
    pod.cancelRetry();
    await this.#leaving.settle(info.uid, pod.netns);
    await this.#start(pod);
  }

  /** Returns the present pod when it is in the same namespace, else a new one. */
  #entry(info: PodInfo, netnsFd: number): ServedPod {
    try {
      if (this.#closing) throw new MeshError('STATE_UNAVAILABLE', 'the proxy is draining');
      const netns = this.#deps.netnsIdentity(netnsFd);
      const present = this.#pods.get(info.uid);
      if (present?.isIn(netns) === true) {
        this.#deps.closeFd(netnsFd);
        return present;
      }
      if (present !== undefined) {
        this.#deps.log.info({ uid: info.uid }, 'pod.replaced');
        this.#retire(present, 'immediate', 0);
      }
      if (this.#pods.size >= MAX_PODS) {
        throw new MeshError('STATE_UNAVAILABLE', `no more than ${MAX_PODS} pods are served`);
      }
      const pod = new ServedPod(info, netnsFd, netns);
      this.#pods.set(info.uid, pod);
      this.#deps.changed();
      return pod;
    } catch (error) {
      this.#deps.closeFd(netnsFd);
      throw error;
    }
  }

  async #start(pod: ServedPod): Promise<void> {
    const { info } = pod;
    try {
      const placed = await this.#place(pod);
      pod.placed = placed;
      pod.holder = placed;
      const listening = await inTime(this.#deps.clock, POD_START_TIMEOUT_MS, placed.listening);
      if (!listening) {
        throw new MeshError('ZDS_TIMEOUT', `not listening after ${POD_START_TIMEOUT_MS} ms`);
      }
      this.#assertPresent(pod);
      pod.state = 'Up';
      pod.upSinceMs = this.#deps.clock.monotonic();
      this.#deps.counters.started();
      this.#deps.log.info({ ...info, thread: placed.thread }, 'pod.listening');
      void placed.ended.then((error) => this.#onEnded(pod, placed, error));
    } catch (error) {
      const failure = asMeshError(error, 'NETNS_UNAVAILABLE');
      this.#deps.log.warn({ ...info, error: failure.message }, 'pod.start-failed');
      const { placed } = pod;
      pod.placed = null;
      if (placed !== null) await this.#endFailedStart(placed);
      throw failure;
    } finally {
      this.#deps.changed();
    }
  }

  async #endFailedStart(placed: PlacedPod): Promise<void> {
    placed.stop('immediate', 0);
    const gone = await inTime(this.#deps.clock, POD_STOP_TIMEOUT_MS, placed.ended);
    if (!gone) this.#deps.log.error({ uid: placed.info.uid }, 'pod.stuck');
  }

  /** Avoids threads that still drain the same uid. When no other thread can take the pod, the drain is cut short. */
  async #place(pod: ServedPod): Promise<PlacedPod> {
    // The pod and its descriptor may have gone during an earlier wait.
    this.#assertPresent(pod);
    const avoid = this.#leaving.threadsOf(pod.info.uid);
    try {
      return this.#deps.place(pod.info, pod.netnsFd, avoid);
    } catch (error) {
      if (avoid.size === 0) throw error;
      await this.#leaving.cut(pod.info.uid);
      this.#assertPresent(pod);
      return this.#deps.place(pod.info, pod.netnsFd, new Set());
    }
  }

  #assertPresent(pod: ServedPod): void {
    if (this.#pods.get(pod.info.uid) === pod) return;
    throw new MeshError('STATE_UNAVAILABLE', 'the pod left while it was started');
  }

  #onEnded(pod: ServedPod, placed: PlacedPod, error: MeshError | null): void {
    if (pod.placed !== placed || this.#pods.get(pod.info.uid) !== pod) return;
    pod.placed = null;
    pod.state = 'Pending';
    if (this.#deps.clock.monotonic() - pod.upSinceMs > STABLE_AFTER_MS) pod.backoff.reset();
    this.#deps.counters.lost();
    this.#deps.log.error({ uid: pod.info.uid, error: error?.message ?? 'ended' }, 'pod.lost');
    this.#retryLater(pod);
    this.#deps.changed();
  }

  #retryLater(pod: ServedPod): void {
    pod.cancelRetry();
    pod.retry = this.#deps.clock.after(pod.backoff.next(), () => this.#retryOne(pod));
  }

  #retryPending(): void {
    for (const pod of this.#pods.values()) {
      if (pod.state === 'Pending' && pod.retry === null && pod.placed === null) this.#retryOne(pod);
    }
  }

  #retryOne(pod: ServedPod): void {
    pod.retry = null;
    const { uid } = pod.info;
    const current = (): boolean =>
      !this.#closing && this.#pods.get(uid) === pod && pod.state === 'Pending';
    this.#lock
      .run(uid, async () => {
        if (current() && pod.placed === null) await this.#start(pod);
      })
      .catch((error: unknown) => {
        this.#deps.log.debug({ uid, error: errorText(error) }, 'pod.retry-failed');
        // A pod that was up is cut off now, so it does not wait for the next round.
        if (current() && pod.upSinceMs > 0) this.#retryLater(pod);
      });
  }

  #retire(pod: ServedPod, mode: 'immediate' | 'graceful', deadlineMs: number): void {
    this.#pods.delete(pod.info.uid);
    pod.cancelRetry();
    const wasUp = pod.state === 'Up';
    const { placed } = pod;
    pod.placed = null;
    if (wasUp) this.#deps.counters.stopped();
    if (placed === null) this.#releaseFd(pod);
    else this.#leaving.add(pod, placed, { mode, deadlineMs, closes: true });
    this.#shares.stop(pod, { mode, deadlineMs });
    this.#deps.changed();
  }

  /** Closes the descriptor once its last task has ended: until then the number must not be reused. */
  #releaseFd(pod: ServedPod): void {
    if (pod.holder === null || pod.holder.over) this.#deps.closeFd(pod.netnsFd);
    else void pod.holder.ended.then(() => this.#deps.closeFd(pod.netnsFd));
  }
}
