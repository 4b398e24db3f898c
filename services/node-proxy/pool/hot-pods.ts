import type { EventLoopUtilization } from 'node:perf_hooks';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodActivity } from '../../../workers/listener/protocol.ts';
import { HOT_SAMPLE_MS } from '../limits.ts';
import { HotThreads } from './hot-threads.ts';
import type { HotAction, HotSettings, SpreadPod, ThreadSample } from './hot-threads.ts';
import type { ListenerThread } from './listener-thread.ts';

/** What is looked at of a {@link ListenerThread}. */
export type WatchedThread = Pick<ListenerThread, 'number' | 'activity'> & {
  readonly pods: Pick<ListenerThread['pods'], 'has'>;
  readonly worker: {
    readonly performance: Pick<ListenerThread['worker']['performance'], 'eventLoopUtilization'>;
  };
};

/** What spreading needs from the process. */
export interface HotPodsDependencies {
  readonly clock: Clock;
  readonly log: Logger;
  threads(): Iterable<WatchedThread>;
  readonly pods: SharedPods;
  /** A further thread listens for a pod. */
  onShared(): void;
}

/** The pods, as far as their threads go. */
export interface SharedPods {
  /** With the threads that listen for each, the first placed first. */
  readonly pods: ReadonlyMap<string, { readonly threads: readonly number[] }>;
  /** Has one more thread listen for the pod. */
  share(uid: string, thread: number): Promise<void>;
  /** Has the thread stop listening for the pod; what it carries lives on. */
  unshare(uid: string, thread: number): void;
}

const NONE: ReadonlyMap<string, number> = new Map();

/** Watches how busy the threads are, and spreads the hottest pod of a saturated one. */
export class HotPods {
  readonly #deps: HotPodsDependencies;
  readonly #rules: HotThreads;
  readonly #timer: Timer;
  readonly #lastLoad = new WeakMap<WatchedThread, EventLoopUtilization>();
  /** By thread and uid: what was done until the last look. */
  readonly #lastActivity = new Map<string, number>();
  #busy = false;

  constructor(settings: HotSettings, deps: HotPodsDependencies) {
    this.#deps = deps;
    this.#rules = new HotThreads(settings);
    const intervalMs = Math.min(HOT_SAMPLE_MS, Math.max(50, settings.hotAfterMs / 2));
    this.#timer = deps.clock.every(intervalMs, () => {
      if (this.#busy) return;
      this.#busy = true;
      void this.#look().finally(() => {
        this.#busy = false;
      });
    });
  }

  /** Looks no more. */
  close(): void {
    this.#timer.cancel();
  }

  async #look(): Promise<void> {
    const { clock } = this.#deps;
    const threads = [...this.#deps.threads()];
    const samples = threads.map((thread) => this.#sample(thread));
    const hot = samples.some((sample) => this.#rules.isHot(sample));
    // Only a hot thread's pods are compared, and not before it was hot at two looks: the first is where the second counts from.
    const activity = hot && threads.length > 1 ? await this.#activity(threads) : NONE;
    const pods = [...this.#deps.pods.pods].map(([uid, { threads: own }]): SpreadPod => {
      const occupied = threads.filter((thread) => thread.pods.has(uid)).map(({ number }) => number);
      const done = own.map((thread) => [thread, activity.get(key(thread, uid)) ?? 0] as const);
      return { uid, threads: own, occupied, activity: new Map(done) };
    });
    for (const action of this.#rules.decide(samples, pods, clock.monotonic())) {
      await this.#act(action);
    }
  }

  async #act(action: HotAction): Promise<void> {
    const { log, onShared, pods } = this.#deps;
    const { type, uid, thread } = action;
    try {
      if (type === 'unshare') pods.unshare(uid, thread);
      else {
        await pods.share(uid, thread);
        onShared();
      }
      log.info({ uid, thread }, type === 'share' ? 'pod.shared' : 'pod.unshared');
    } catch (error) {
      // It stays as it is; the thread has to be hot for as long again.
      log.warn({ uid, thread, error: errorText(error) }, 'pod.not-shared');
    }
  }

  #sample(thread: WatchedThread): ThreadSample {
    const now = thread.worker.performance.eventLoopUtilization();
    const { utilization } = thread.worker.performance.eventLoopUtilization(
      now,
      this.#lastLoad.get(thread),
    );
    this.#lastLoad.set(thread, now);
    return { thread: thread.number, utilisation: utilization };
  }

  /** What each pod did on each thread since the last look; a thread that does not answer counts as idle. */
  async #activity(threads: readonly WatchedThread[]): Promise<ReadonlyMap<string, number>> {
    const since = new Map<string, number>();
    const totals = new Map<string, number>();
    await Promise.all(
      threads.map(async (thread) => {
        const pods = await thread.activity().catch((): readonly PodActivity[] => []);
        for (const { uid, total } of pods) {
          const id = key(thread.number, uid);
          totals.set(id, total);
          since.set(id, Math.max(0, total - (this.#lastActivity.get(id) ?? 0)));
        }
      }),
    );
    this.#lastActivity.clear();
    for (const [id, total] of totals) this.#lastActivity.set(id, total);
    return since;
  }
}

function key(thread: number, uid: string): string {
  return `${thread} ${uid}`;
}
