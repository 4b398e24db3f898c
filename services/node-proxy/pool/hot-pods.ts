import type { EventLoopUtilization } from 'node:perf_hooks';
import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import { errorText } from '../../../lib/errors/mesh-error.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import type { PodActivity } from '../../../workers/listener/protocol/control.ts';
import { HOT_SAMPLE_MS } from '../limits.ts';
import { HotThreads } from './hot-threads.ts';
import type { HotAction, HotSettings, SpreadPod, ThreadSample } from './hot-threads.ts';
import type { ThreadHandle } from './thread-handle.ts';

/** The part of a {@link ThreadHandle} that is watched. */
export type WatchedThread = Pick<ThreadHandle, 'number' | 'activity'> & {
  readonly pods: Pick<ThreadHandle['pods'], 'has'>;
  readonly worker: {
    readonly performance: Pick<ThreadHandle['worker']['performance'], 'eventLoopUtilization'>;
  };
};

/** Collaborators of {@link HotPods}. */
export interface HotPodsDeps {
  readonly clock: Clock;
  readonly log: Logger;
  threads(): Iterable<WatchedThread>;
  readonly pods: SharedPods;
  /** A further thread listens for a pod. */
  onShared(): void;
}

/** The pods and their threads. */
export interface SharedPods {
  /** Pods by uid, with the threads that listen for each; the first is the one it was placed on. */
  readonly pods: ReadonlyMap<string, { readonly threads: readonly number[] }>;
  /** Has one more thread listen for the pod. */
  share(uid: string, thread: number): Promise<void>;
  /** Stops listening for the pod on the thread; its connections there live on. */
  unshare(uid: string, thread: number): void;
}

const NONE: ReadonlyMap<string, number> = new Map();

/** Watches how busy the threads are, and spreads the hottest pod of a saturated one. */
export class HotPods {
  readonly #deps: HotPodsDeps;
  readonly #rules: HotThreads;
  readonly #timer: Timer;
  readonly #lastLoad = new WeakMap<WatchedThread, EventLoopUtilization>();
  /** Total activity until the last look, by thread and uid. */
  readonly #lastActivity = new Map<string, number>();
  #busy = false;

  constructor(settings: HotSettings, deps: HotPodsDeps) {
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

  /** Stops watching. */
  close(): void {
    this.#timer.cancel();
  }

  async #look(): Promise<void> {
    const { clock } = this.#deps;
    const threads = [...this.#deps.threads()];
    const samples = threads.map((thread) => this.#sample(thread));
    const hot = samples.some((sample) => this.#rules.isHot(sample));
    // Pods are compared only when a thread is hot. The first look at their activity is the base for the second.
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
      // Nothing changed; the thread must be hot for as long again.
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

  /** Returns the activity of each pod on each thread since the last look. A thread that does not answer counts as idle. */
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
