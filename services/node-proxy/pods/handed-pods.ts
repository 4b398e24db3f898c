/** Hands the pods of the node agent to the other proxies of the node (docs/decisions/zds-sessions.md). */
import { inTime } from '../../../lib/async/time-limit.ts';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import { NetnsHandle } from '../../../lib/linux/netns-handle.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { ZdsAgent } from '../../../lib/zds/agent.ts';
import type { ZdsPod } from '../../../lib/zds/agent.ts';
import type { ZdsWorkloadInfo } from '../../../lib/zds/frames.ts';
import { MAX_PODS, SIBLINGS_LISTEN_RETRY_MS, SIBLINGS_TIMEOUT_MS } from '../limits.ts';

/** Only processes of the own user connect. */
const SOCKET_MODE = 0o600;
/** A Keep carries no facts about its pod. */
const NO_INFO: ZdsWorkloadInfo = { name: '', namespace: '', serviceAccount: '' };

/** Settings and ports of {@link HandedPods}. */
export interface HandedPodsOptions {
  /** Path of the siblings' socket. */
  readonly path: string;
  /** The generation of this process. */
  readonly group: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Keeps the pods that the node agent named to this process, with duplicates of their descriptors, and is the node agent of the
 * siblings. It listens once the agent's snapshot is complete, because a sibling drops the pods that a snapshot leaves out.
 */
export class HandedPods {
  readonly #options: HandedPodsOptions;
  readonly #agent: ZdsAgent;
  readonly #pods = new Map<string, ZdsPod>();
  #listening = false;
  #closed = false;
  #retry: Timer | null = null;

  constructor(options: HandedPodsOptions) {
    this.#options = options;
    const { path, clock, log } = options;
    this.#agent = new ZdsAgent({
      path,
      mode: SOCKET_MODE,
      clock,
      log,
      snapshot: () => this.#pods.values(),
      // A pod may have been handed only to siblings that are gone now.
      onProxies: () => queueMicrotask(() => this.#handAgain()),
    });
  }

  /** Number of siblings that have the pods of this process, draining ones included. */
  get siblings(): number {
    return this.#agent.connections.filter(({ synced }) => synced).length;
  }

  /**
   * Keeps the pod and a duplicate of its descriptor, which the caller may close after this call has returned. Resolves when the
   * siblings of the newest generation serve the pod. Rejects within {@link SIBLINGS_TIMEOUT_MS} with ZDS_REFUSED or ZDS_TIMEOUT that
   * names the processes that do not; with STATE_UNAVAILABLE or NATIVE_SYSCALL when the pod cannot be kept.
   */
  async add(uid: string, info: ZdsWorkloadInfo, netnsFd: number): Promise<void> {
    if (this.#closed) return;
    if (this.#pods.size >= MAX_PODS && !this.#pods.has(uid)) {
      throw new MeshError('STATE_UNAVAILABLE', `no more than ${MAX_PODS} pods are handed on`);
    }
    const pod = { uid, info, netns: NetnsHandle.open(`/proc/self/fd/${netnsFd}`) };
    this.#drop(uid);
    this.#pods.set(uid, pod);
    try {
      if (await this.#inTime(this.#ensure(pod))) return;
    } catch (error) {
      this.#options.log.warn({ uid, reason: errorText(error) }, 'zds.handing-failed');
      throw error;
    }
    const late = this.#agent.unserved(pod);
    this.#options.log.warn({ uid, pids: late, reason: 'late' }, 'zds.handing-failed');
    throw new MeshError(
      'ZDS_TIMEOUT',
      `pod ${uid} is not served by process ${late.join(', ')} after ${SIBLINGS_TIMEOUT_MS} ms`,
    );
  }

  /** Tells all siblings that the pod is gone. Rejects with ZDS_TIMEOUT when one does not answer within {@link SIBLINGS_TIMEOUT_MS}. */
  async remove(uid: string): Promise<void> {
    this.#drop(uid);
    if (await this.#inTime(this.#agent.del(uid))) return;
    throw new MeshError(
      'ZDS_TIMEOUT',
      `a sibling did not answer del of pod ${uid} within ${SIBLINGS_TIMEOUT_MS} ms`,
    );
  }

  /** The node agent has named all pods: tells the siblings of those that are gone, and listens for siblings from now on. */
  async complete(uids: ReadonlySet<string>): Promise<void> {
    if (this.#closed) return;
    const gone = [...this.#pods.keys()].filter((uid) => !uids.has(uid));
    for (const uid of uids) {
      if (!this.#pods.has(uid)) this.#pods.set(uid, { uid, info: NO_INFO, netns: null });
    }
    const removed = Promise.allSettled(gone.map((uid) => this.remove(uid)));
    this.#listen();
    await removed;
  }

  /** Ends the sessions of the siblings, which go on serving, and forgets all pods. Idempotent. */
  close(): void {
    this.#closed = true;
    this.#retry?.cancel();
    for (const uid of this.#pods.keys()) this.#drop(uid);
    this.#agent.close();
  }

  #listen(): void {
    if (this.#listening || this.#closed) return;
    const { path, clock, log } = this.#options;
    try {
      this.#agent.start();
      this.#listening = true;
    } catch (error) {
      log.error({ path, reason: errorText(error) }, 'zds.listen-failed');
      this.#retry = clock.after(SIBLINGS_LISTEN_RETRY_MS, () => this.#listen());
    }
  }

  #inTime(work: Promise<void>): Promise<boolean> {
    return inTime(this.#options.clock, SIBLINGS_TIMEOUT_MS, work);
  }

  /** Resolves when the siblings that should serve the pod do, or when it is handed on no more. */
  async #ensure(pod: ZdsPod): Promise<void> {
    const wanted = (): boolean => this.#pods.get(pod.uid) === pod;
    while (wanted() && this.#hasReceivers()) {
      try {
        await this.#agent.ensure(pod, wanted);
        return;
      } catch (error) {
        // A sibling that has ended need not serve the pod; those that are left still have to.
        if (!(error instanceof MeshError && error.code === 'ZDS_NO_PROXY')) throw error;
      }
    }
  }

  #handAgain(): void {
    if (!this.#hasReceivers()) return;
    for (const pod of this.#pods.values()) {
      if (pod.netns === null || this.#agent.served(pod)) continue;
      // The agent's side logs what a sibling refuses.
      void this.#ensure(pod).catch(() => undefined);
    }
  }

  /** True when a serving sibling is of this process's generation or a newer one: older ones get no new pods. */
  #hasReceivers(): boolean {
    const { group } = this.#options;
    return this.#agent.connections.some(
      (sibling) => sibling.state === 'serving' && sibling.group >= group,
    );
  }

  #drop(uid: string): void {
    this.#pods.get(uid)?.netns?.release();
    this.#pods.delete(uid);
  }
}
