import { Piscina, queueOptionsSymbol } from 'piscina';
import { setImmediate as turn } from 'node:timers/promises';
import type { MessagePort, Worker } from 'node:worker_threads';
import { inTime } from '../../../lib/async/time-limit.ts';
import { Backoff } from '../../../lib/clock/backoff.ts';
import type { Clock } from '../../../lib/clock/clock.ts';
import { MeshError, asMeshError, errorText } from '../../../lib/errors/mesh-error.ts';
import type { RevocationLists } from '../../../lib/identity/crl.ts';
import type { AccessSettings } from '../../../lib/log/access-gate.ts';
import type { Logger } from '../../../lib/log/logger.ts';
import { newBudgetMemory } from '../../../lib/net/node-budget.ts';
import type {
  ControlToThread,
  ListenerTask,
  PodInfo,
  PodTask,
  ThreadAttachment,
} from '../../../workers/listener/protocol/control.ts';
import type { ListenerSettings } from '../../../workers/listener/protocol/settings.ts';
import {
  ATTACH_ATTEMPTS,
  ATTACH_BACKOFF,
  ATTACH_TIMEOUT_MS,
  MAX_TASKS_PER_THREAD,
  YOUNG_GENERATION_MB,
} from '../limits.ts';
import { introduce } from './introduce.ts';
import { ThreadHandle } from './thread-handle.ts';
import type { ThreadEvents } from './thread-handle.ts';
import { leastLoaded } from './placement.ts';
import { PlacedPod } from './placed-pod.ts';

/** Settings of {@link ListenerPool}. */
export interface ListenerPoolOptions {
  /** Absolute path of the file that threads run. */
  readonly entry: string;
  readonly threads: number;
  readonly settings: ListenerSettings;
}

/** Collaborators of {@link ListenerPool}. */
export interface ListenerPoolDeps extends ThreadEvents {
  readonly clock: Clock;
  readonly log: Logger;
  /** Returns a new port to the mesh state for the thread of this number. */
  connectState(thread: number): MessagePort;
  /** A thread died; keep its last known counters. */
  threadLost(thread: ThreadHandle): void;
  /** No thread is left, and none can be made. */
  unrecoverable(error: MeshError): void;
}

type RunOptions = Parameters<Piscina['run']>[1];

/** Names the thread of a task; piscina reads it by its own symbol. */
interface Route {
  readonly threadId: number;
}

/**
 * Runs the listener threads. Each is wired once (`attach`) and then runs one long task for each of its pods. When a thread
 * dies, the tasks of its pods end with an error, and another thread replaces it.
 */
export class ListenerPool {
  readonly #options: ListenerPoolOptions;
  readonly #deps: ListenerPoolDeps;
  readonly #threads = new Map<number, ThreadHandle>();
  /** Threads that are being wired, by number. */
  readonly #attaching = new Map<number, Promise<void>>();
  readonly #linked = new WeakSet<Worker>();
  readonly #attachBackoff = new Backoff(ATTACH_BACKOFF);
  #settings: ListenerSettings;
  #revocations: RevocationLists | null = null;
  /** Counters that the threads share. A thread clears its part when it begins; the replacement of a dead one has its number. */
  readonly #budget = newBudgetMemory();
  #piscina: Piscina | null = null;
  #closing = false;

  constructor(options: ListenerPoolOptions, deps: ListenerPoolDeps) {
    this.#options = options;
    this.#settings = options.settings;
    this.#deps = deps;
  }

  /** Threads that take pods, by number. */
  get threads(): ReadonlyMap<number, ThreadHandle> {
    return this.#threads;
  }

  /** Makes and wires all threads. Rejects with ACTOR_FAILED when one cannot be wired. */
  async start(): Promise<void> {
    const piscina = new Piscina({
      filename: this.#options.entry,
      name: 'attach' satisfies ListenerTask,
      minThreads: this.#options.threads,
      maxThreads: this.#options.threads,
      concurrentTasksPerWorker: MAX_TASKS_PER_THREAD,
      // The default blocks the thread between tasks, and a blocked thread accepts nothing.
      atomics: 'disabled',
      recordTiming: false,
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_GENERATION_MB },
      // The thread's sockets are not made by node:fs, so there is nothing to track.
      trackUnmanagedFds: false,
      loadBalancer: (task, workers) => {
        const route = task[queueOptionsSymbol] as Route | null;
        const worker = workers.find((candidate) => candidate.id === route?.threadId);
        if (worker === undefined) throw threadGone();
        return worker;
      },
    });
    this.#piscina = piscina;
    piscina.on('error', (error: unknown) =>
      this.#deps.log.error({ error: errorText(error) }, 'pool.error'),
    );
    const initial = piscina.threads.map((worker) => this.#link(worker));
    // Piscina announces a thread just before it counts it as one that takes tasks.
    piscina.on('workerCreate', () => queueMicrotask(() => this.#linkNew()));
    await Promise.all(initial);
  }

  /**
   * Starts serving a pod on the least loaded thread, and avoids threads of `avoid` while there are others. The caller owns
   * the descriptor until the pod has ended. Throws STATE_UNAVAILABLE when no thread is ready.
   */
  place(info: PodInfo, netnsFd: number, avoid: ReadonlySet<number> = new Set()): PlacedPod {
    const number =
      leastLoaded(
        this.#loads((thread) => !avoid.has(thread.number) && !thread.pods.has(info.uid)),
      ) ?? leastLoaded(this.#loads((thread) => !thread.pods.has(info.uid)));
    const thread = number === null ? undefined : this.#threads.get(number);
    if (thread === undefined) {
      throw new MeshError('STATE_UNAVAILABLE', 'no listener thread can take the pod now');
    }
    return this.#start(thread, info, netnsFd);
  }

  /** Does the same on one thread. Throws STATE_UNAVAILABLE when it is gone or holds the pod already. */
  placeOn(number: number, info: PodInfo, netnsFd: number): PlacedPod {
    const thread = this.#threads.get(number);
    if (thread === undefined || thread.pods.has(info.uid)) {
      throw new MeshError('STATE_UNAVAILABLE', `listener thread ${number} cannot take the pod now`);
    }
    return this.#start(thread, info, netnsFd);
  }

  #start(thread: ThreadHandle, info: PodInfo, netnsFd: number): PlacedPod {
    const pod = new PlacedPod(info, thread.number, (mode, deadlineMs) =>
      thread.send({ type: 'pod.stop', uid: info.uid, mode, deadlineMs }),
    );
    thread.pods.set(info.uid, pod);
    void this.#serve(thread, pod, { pod: info, netnsFd });
    return pod;
  }

  /** Tells the threads of a pod to divide its limits among them. */
  divide(uid: string, threads: readonly number[]): void {
    for (const number of threads) {
      this.#threads.get(number)?.send({ type: 'pod.divide', uid, threads: threads.length });
    }
  }

  /** Sends to every thread. */
  broadcast(message: ControlToThread): void {
    for (const thread of this.#threads.values()) thread.send(message);
  }

  /** Changes the log level of every thread, also of those made later. */
  setLogLevel(level: string): void {
    this.#settings = { ...this.#settings, logLevel: level };
    this.broadcast({ type: 'log.level', level });
  }

  /** Gives every thread the revocation lists, also those made later. */
  setRevocations(lists: RevocationLists): void {
    this.#revocations = lists;
    this.broadcast({ type: 'revocations', lists });
  }

  /** Changes which access lines every thread writes, also those made later. */
  setAccessLog(settings: AccessSettings): void {
    this.#settings = { ...this.#settings, accessLog: settings };
    this.broadcast({ type: 'access.settings', settings });
  }

  /** Ends all threads and every pod that is still served. Idempotent. */
  async close(): Promise<void> {
    this.#closing = true;
    await Promise.allSettled(this.#attaching.values());
    for (const thread of this.#threads.values()) thread.close(threadGone());
    this.#threads.clear();
    await this.#piscina?.destroy();
    this.#piscina = null;
  }

  *#loads(accepts: (thread: ThreadHandle) => boolean) {
    for (const thread of this.#threads.values()) if (accepts(thread)) yield thread.load();
  }

  async #serve(thread: ThreadHandle, pod: PlacedPod, task: PodTask): Promise<void> {
    let error: MeshError | null = null;
    try {
      await this.#run('servePod', thread, { ...task });
    } catch (failure) {
      error = asMeshError(failure, 'ACTOR_FAILED', 'the listener task failed');
    }
    // The reason of the end comes on another port. Wait a turn so that it arrives first.
    await turn();
    if (thread.pods.get(pod.info.uid) === pod) thread.pods.delete(pod.info.uid);
    pod.end(error);
  }

  /** Runs a task on exactly this thread. */
  async #run(
    name: ListenerTask,
    thread: ThreadHandle,
    task: object,
    transferList: MessagePort[] = [],
  ): Promise<void> {
    if (this.#piscina === null || !thread.alive) throw threadGone();
    const route: Route = { threadId: thread.worker.threadId };
    // Piscina types the list by another overload of postMessage than it calls.
    const options = { name, transferList } as unknown as RunOptions;
    await this.#piscina.run({ ...task, [queueOptionsSymbol]: route }, options);
  }

  #linkNew(): void {
    if (this.#closing || this.#piscina === null) return;
    for (const worker of this.#piscina.threads) {
      if (this.#linked.has(worker)) continue;
      this.#link(worker).catch((error: unknown) => this.#replaceUnwired(worker, error));
    }
  }

  /** Ends a thread that cannot be wired, so that piscina makes another. */
  #replaceUnwired(worker: Worker, error: unknown): void {
    if (this.#closing) return;
    this.#deps.log.error({ error: errorText(error) }, 'thread.attach-failed');
    if (this.#attachBackoff.attempt >= ATTACH_ATTEMPTS && this.#threads.size === 0) {
      this.#deps.unrecoverable(asMeshError(error, 'ACTOR_FAILED'));
      return;
    }
    this.#deps.clock.after(this.#attachBackoff.next(), () => {
      worker
        .terminate()
        .catch((failure: unknown) =>
          this.#deps.log.error({ error: errorText(failure) }, 'thread.terminate-failed'),
        );
    });
  }

  /** Wires a thread, which takes pods afterwards. */
  #link(worker: Worker): Promise<void> {
    const thread = new ThreadHandle(this.#freeNumber(), worker, this.#deps.clock, this.#deps);
    this.#linked.add(worker);
    worker.once('exit', () => this.#lost(thread));
    const attached = this.#attach(thread).finally(() => this.#attaching.delete(thread.number));
    this.#attaching.set(thread.number, attached);
    return attached;
  }

  async #attach(thread: ThreadHandle): Promise<void> {
    const state = this.#deps.connectState(thread.number);
    const attachment: ThreadAttachment = {
      thread: thread.number,
      settings: this.#settings,
      control: thread.farControl,
      state,
      revocations: this.#revocations,
      budget: this.#budget,
    };
    try {
      const attached = this.#run('attach', thread, attachment, [thread.farControl, state]);
      if (!(await inTime(this.#deps.clock, ATTACH_TIMEOUT_MS, attached))) {
        throw new MeshError('BUS_TIMEOUT', `a thread was not ready after ${ATTACH_TIMEOUT_MS} ms`);
      }
    } catch (error) {
      const failure = asMeshError(error, 'ACTOR_FAILED', 'cannot wire a listener thread');
      thread.close(failure);
      state.close();
      throw failure;
    }
    if (this.#closing || !thread.alive) return;
    if (this.#settings.sameNodeFastPath) introduce(thread, this.#threads.values());
    this.#threads.set(thread.number, thread);
    // The lists may have changed while the thread was wired.
    if (this.#revocations !== null && this.#revocations !== attachment.revocations) {
      thread.send({ type: 'revocations', lists: this.#revocations });
    }
    this.#attachBackoff.reset();
    this.#deps.log.debug({ thread: thread.number }, 'thread.ready');
  }

  #freeNumber(): number {
    let number = 0;
    while (this.#threads.has(number) || this.#attaching.has(number)) number += 1;
    return number;
  }

  #lost(thread: ThreadHandle): void {
    if (this.#threads.get(thread.number) === thread) this.#threads.delete(thread.number);
    if (this.#closing) return;
    this.#deps.log.error({ thread: thread.number, pods: thread.pods.size }, 'thread.lost');
    this.#deps.threadLost(thread);
    thread.close(new MeshError('ACTOR_FAILED', `listener thread ${thread.number} died`));
    this.#checkRecoverable();
  }

  /** Reports that no thread is left. Piscina replaces dead threads, but gives up on an entry that fails while it loads. */
  #checkRecoverable(): void {
    if (this.#closing || this.#threads.size > 0 || this.#attaching.size > 0) return;
    if ((this.#piscina?.threads.length ?? 0) > 0) return;
    this.#deps.unrecoverable(
      new MeshError('ACTOR_FAILED', 'every listener thread died and none can be made'),
    );
  }
}

function threadGone(): MeshError {
  return new MeshError('STATE_UNAVAILABLE', 'the listener thread is gone');
}
