import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { PolicyStore } from '../../../lib/policy/policy-store.ts';
import type { Service, Workload } from '../../../lib/state/model.ts';
import type { LocalPod, PodInfo, StateResponse } from '../../../workers/listener/protocol.ts';
import { PROGRAM_WAIT_MS } from '../limits.ts';
import type { ProgramBook } from './program-book.ts';
import type { TimeSlice } from '../../../lib/async/time-slice.ts';

/** What is asked about a watched pod. */
export interface LocalView {
  /** The workload of a pod of this node, null when it is not known. */
  localWorkload(pod: PodInfo): Workload | null;
  /** The services a workload names that are known. */
  servicesOf(workload: Workload): readonly Service[];
}

/** What watches need. */
export interface WatchDependencies {
  readonly clock: Clock;
  readonly view: LocalView;
  readonly policies: PolicyStore;
  readonly programs: ProgramBook;
}

/** Carries messages to one listener thread. */
export type SendToThread = (message: StateResponse) => void;

interface Watch {
  readonly pod: PodInfo;
  readonly thread: WatchingThread;
  /** Lookup ids whose change concerns the pod; null while its workload is not known. */
  concerns: ReadonlySet<string> | null;
  workloadUid: string | null;
  /** What was sent last, as JSON, and the set it named. */
  sent: string | null;
  sentSet: string | null;
  /** Since when the program of the set that is wanted now is waited for. */
  waitingSinceMs: number | null;
  timer: Timer | null;
}

interface WatchingThread {
  readonly send: SendToThread;
  /** Sets whose program the thread has, and how many of its pods use each. */
  readonly sets: Map<string, number>;
  readonly watches: Map<string, Watch>;
}

/** No workload, no policies: what a thread is told while the pod is unknown; it admits nothing on it. */
const NO_POLICY = { setId: '', unknown: [], pending: false, denyAll: null } as const;

/**
 * The pods that listener threads serve, and what each thread was told of them: the workload, its services and
 * the policies that bind it, told again on every change, the program of a set always before its first use.
 */
export class Watches {
  readonly #deps: WatchDependencies;
  readonly #threads = new Map<number, WatchingThread>();
  #enabled = false;

  constructor(deps: WatchDependencies) {
    this.#deps = deps;
  }

  /** Begins to tell: the state is complete. */
  enable(): void {
    this.#enabled = true;
  }

  /** A thread that will watch pods; replaces an earlier one of the same number. */
  connect(number: number, send: SendToThread): void {
    this.disconnect(number);
    this.#threads.set(number, { send, sets: new Map(), watches: new Map() });
  }

  /** The thread is gone. */
  disconnect(number: number): void {
    for (const watch of this.#threads.get(number)?.watches.values() ?? []) this.#end(watch);
    this.#threads.delete(number);
  }

  /** Tells the thread of the pod from now on. */
  watch(number: number, pod: PodInfo): void {
    const thread = this.#threads.get(number);
    if (thread === undefined) return;
    this.unwatch(number, pod.uid);
    const watch: Watch = {
      pod,
      thread,
      concerns: null,
      workloadUid: null,
      sent: null,
      sentSet: null,
      waitingSinceMs: null,
      timer: null,
    };
    thread.watches.set(pod.uid, watch);
    this.#refresh(watch);
  }

  /** Ends that. */
  unwatch(number: number, uid: string): void {
    const thread = this.#threads.get(number);
    const watch = thread?.watches.get(uid);
    if (thread === undefined || watch === undefined) return;
    thread.watches.delete(uid);
    this.#end(watch);
    this.#release(thread, watch.sentSet);
  }

  /** Tells of pods that changed lookup ids concern. */
  async addressesChanged(ids: ReadonlySet<string>, slice: TimeSlice): Promise<void> {
    for (const watch of this.#all()) {
      if (watch.concerns !== null && disjoint(watch.concerns, ids)) continue;
      this.#refresh(watch);
      await slice.breathe();
    }
  }

  /** Tells of pods whose policies changed, looking at all. */
  async policiesChanged(slice: TimeSlice): Promise<void> {
    for (const watch of this.#all()) {
      this.#refresh(watch);
      await slice.breathe();
    }
  }

  /** Tells of pods that wait for a program. */
  async programsChanged(slice: TimeSlice): Promise<void> {
    for (const watch of this.#all()) {
      if (watch.waitingSinceMs === null) continue;
      this.#refresh(watch);
      await slice.breathe();
    }
  }

  /** Sends to every thread. */
  broadcast(message: StateResponse): void {
    for (const thread of this.#threads.values()) thread.send(message);
  }

  /** A copy, as a slice may end watches while it is walked. */
  #all(): Watch[] {
    return [...this.#threads.values()].flatMap((thread) => [...thread.watches.values()]);
  }

  #refresh(watch: Watch): void {
    if (!this.#enabled || watch.thread.watches.get(watch.pod.uid) !== watch) return;
    watch.timer?.cancel();
    watch.timer = null;
    const workload = this.#deps.view.localWorkload(watch.pod);
    if (watch.workloadUid !== null && watch.workloadUid !== workload?.uid) {
      this.#deps.policies.forget(watch.workloadUid);
    }
    watch.workloadUid = workload?.uid ?? null;
    if (workload === null) {
      watch.concerns = null;
      watch.waitingSinceMs = null;
      this.#tell(watch, { workload: null, services: [], policy: NO_POLICY });
      return;
    }
    watch.concerns = concernsOf(workload);
    this.#refreshKnown(watch, workload);
  }

  #refreshKnown(watch: Watch, workload: Workload): void {
    const { clock, policies, view } = this.#deps;
    const now = clock.now();
    const effective = policies.effectiveFor(workload, now);
    const { setId } = effective.policy;
    if (!this.#giveProgram(watch, setId, effective.policies, now)) return;
    watch.waitingSinceMs = null;
    this.#tell(watch, { workload, services: view.servicesOf(workload), policy: effective.policy });
    if (effective.pendingUntilMs !== null) {
      this.#refreshAt(watch, effective.pendingUntilMs - now);
    }
  }

  /** False while the evaluator still has time to publish the program; the thread keeps what it has. */
  #giveProgram(
    watch: Watch,
    setId: string,
    members: Parameters<ProgramBook['compile']>[1],
    now: number,
  ): boolean {
    const { programs } = this.#deps;
    if (watch.thread.sets.has(setId)) return true;
    let program = programs.find(setId);
    if (program === null) {
      watch.waitingSinceMs ??= now;
      const leftMs = watch.waitingSinceMs + PROGRAM_WAIT_MS - now;
      if (leftMs > 0 && members.length > 0) {
        this.#refreshAt(watch, leftMs);
        return false;
      }
      program = programs.compile(setId, members);
    }
    watch.thread.sets.set(setId, 0);
    watch.thread.send({ type: 'program', program });
    return true;
  }

  #refreshAt(watch: Watch, delayMs: number): void {
    watch.timer?.cancel();
    watch.timer = this.#deps.clock.after(Math.max(0, delayMs), () => this.#refresh(watch));
  }

  #tell(watch: Watch, local: LocalPod): void {
    const text = JSON.stringify(local);
    if (text === watch.sent) return;
    const { thread, sentSet } = watch;
    const setId = local.workload === null ? null : local.policy.setId;
    watch.sent = text;
    watch.sentSet = setId;
    thread.send({ type: 'local', uid: watch.pod.uid, pod: local });
    if (setId === sentSet) return;
    if (setId !== null) thread.sets.set(setId, (thread.sets.get(setId) ?? 0) + 1);
    this.#release(thread, sentSet);
  }

  /** One pod less uses the set; the thread drops the program with the last. */
  #release(thread: WatchingThread, setId: string | null): void {
    if (setId === null) return;
    const users = (thread.sets.get(setId) ?? 0) - 1;
    if (users > 0) {
      thread.sets.set(setId, users);
      return;
    }
    thread.sets.delete(setId);
    thread.send({ type: 'program.drop', setId });
  }

  #end(watch: Watch): void {
    watch.timer?.cancel();
    watch.timer = null;
    if (watch.workloadUid !== null) this.#deps.policies.forget(watch.workloadUid);
  }
}

function concernsOf(workload: Workload): ReadonlySet<string> {
  return new Set([
    `uid:${workload.uid}`,
    ...Object.keys(workload.services).map((key) => `service:${key}`),
  ]);
}

function disjoint(few: ReadonlySet<string>, many: ReadonlySet<string>): boolean {
  for (const id of few) if (many.has(id)) return false;
  return true;
}
