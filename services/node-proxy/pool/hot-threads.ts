/** Decides when one thread more serves a pod, and when one less. Pure. */

/** How busy a thread was in the last interval. */
export interface ThreadSample {
  readonly thread: number;
  /** Share of the interval that its event loop was busy, 0 to 1. */
  readonly utilisation: number;
}

/** A pod and the threads that listen for it. */
export interface SpreadPod {
  readonly uid: string;
  /** The first is the one the pod was placed on. */
  readonly threads: readonly number[];
  /** These threads, and those that still carry connections of the pod: those cannot take it again yet. */
  readonly occupied: readonly number[];
  /** Activity of the pod on each of its threads in the last interval, in comparable units. */
  readonly activity: ReadonlyMap<number, number>;
}

/** Bounds of the decision; times in milliseconds. */
export interface HotSettings {
  /** A thread busier than this is hot. */
  readonly utilisation: number;
  readonly hotAfterMs: number;
  readonly coolAfterMs: number;
}

/** An action to take now. */
export type HotAction =
  | { readonly type: 'share'; readonly uid: string; readonly thread: number }
  | { readonly type: 'unshare'; readonly uid: string; readonly thread: number };

/** A thread takes a pod only while it is below this share of the bound, so that it stays well below the bound. */
const ROOM = 0.7;
/** A pod is cool when its threads together are below this share of the bound: one thread less then stays below it. */
const COOL = 0.5;

/** Remembers how long threads have been hot and pods have been cool. */
export class HotThreads {
  readonly #settings: HotSettings;
  readonly #hotSince = new Map<number, number>();
  readonly #coolSince = new Map<string, number>();

  constructor(settings: HotSettings) {
    this.#settings = settings;
  }

  /** Returns the actions for the samples of this moment; at most one for each thread and pod. */
  decide(samples: readonly ThreadSample[], pods: readonly SpreadPod[], nowMs: number): HotAction[] {
    const actions: HotAction[] = [];
    for (const sample of samples) {
      const action = this.#relieve(sample, samples, pods, nowMs);
      if (action !== null) actions.push(action);
    }
    for (const pod of pods) {
      const action = this.#release(pod, samples, nowMs);
      if (action !== null && !actions.some(({ uid }) => uid === pod.uid)) actions.push(action);
    }
    this.#forget(samples, pods);
    return actions;
  }

  /** Returns true when the thread is busier than the bound. */
  isHot({ utilisation }: ThreadSample): boolean {
    return utilisation > this.#settings.utilisation;
  }

  #relieve(
    sample: ThreadSample,
    samples: readonly ThreadSample[],
    pods: readonly SpreadPod[],
    nowMs: number,
  ): HotAction | null {
    const { utilisation, hotAfterMs } = this.#settings;
    const { thread } = sample;
    if (!this.isHot(sample)) {
      this.#hotSince.delete(thread);
      return null;
    }
    const since = this.#hotSince.get(thread);
    this.#hotSince.set(thread, since ?? nowMs);
    // The activity of its pods in an interval is known from the second look on.
    if (since === undefined || nowMs - since < hotAfterMs) return null;
    const hottest = pods
      .filter(({ threads }) => threads.includes(thread))
      .sort((a, b) => (b.activity.get(thread) ?? 0) - (a.activity.get(thread) ?? 0))[0];
    const target = samples
      .filter(
        (other) =>
          other.utilisation < utilisation * ROOM &&
          hottest?.occupied.includes(other.thread) === false,
      )
      .sort((a, b) => a.utilisation - b.utilisation)[0];
    if (hottest === undefined || target === undefined) return null;
    // The thread must be hot for as long again before the next share.
    this.#hotSince.set(thread, nowMs);
    return { type: 'share', uid: hottest.uid, thread: target.thread };
  }

  #release(pod: SpreadPod, samples: readonly ThreadSample[], nowMs: number): HotAction | null {
    const { utilisation, coolAfterMs } = this.#settings;
    const own = samples.filter(({ thread }) => pod.threads.includes(thread));
    const together = own.reduce((sum, sample) => sum + sample.utilisation, 0);
    const last = pod.threads.at(-1);
    if (pod.threads.length < 2 || last === undefined || together >= utilisation * COOL) {
      this.#coolSince.delete(pod.uid);
      return null;
    }
    const since = this.#coolSince.get(pod.uid) ?? nowMs;
    this.#coolSince.set(pod.uid, since);
    if (nowMs - since < coolAfterMs) return null;
    this.#coolSince.set(pod.uid, nowMs);
    return { type: 'unshare', uid: pod.uid, thread: last };
  }

  #forget(samples: readonly ThreadSample[], pods: readonly SpreadPod[]): void {
    for (const thread of this.#hotSince.keys()) {
      if (!samples.some((sample) => sample.thread === thread)) this.#hotSince.delete(thread);
    }
    for (const uid of this.#coolSince.keys()) {
      if (!pods.some((pod) => pod.uid === uid)) this.#coolSince.delete(uid);
    }
  }
}
