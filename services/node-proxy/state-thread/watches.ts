import type { Clock, Timer } from '../../../lib/clock/clock.ts';
import type { PolicyStore } from '../../../lib/policy/policy-store.ts';
import type { Workload } from '../../../lib/state/model.ts';
import type { PackedStore } from '../../../lib/state/packed-store.ts';
import type { PodInfo } from '../../../workers/listener/protocol/control.ts';
import type { LocalPod, StateResponse } from '../../../workers/listener/protocol/state.ts';
import { PROGRAM_WAIT_MS } from '../limits.ts';
import type { ProgramRegistry } from './program-registry.ts';
import type { Demands } from './on-demand/demands.ts';
import type { TimeSlice } from '../../../lib/async/time-slice.ts';

/** Collaborators of {@link Watches}. */
export interface WatchDeps {
  readonly clock: Clock;
  readonly store: PackedStore;
  /** Pods are of this node; empty = of any. */
  readonly node: string;
  readonly policies: PolicyStore;
  readonly programs: ProgramRegistry;
  /** Null while the whole mesh is followed. */
  readonly demands: Pick<Demands, 'pin' | 'unpin'> | null;
  /** Begins the uids of the pods of this cluster, where the mesh is followed on demand. */
  readonly clusterId: string;
}

/** Sends a message to one listener thread. */
export type SendToThread = (message: StateResponse) => void;

interface Watch {
  readonly pod: PodInfo;
  readonly thread: WatchingThread;
  /** Lookup ids that concern the pod; null while its workload is not known. */
  concerns: ReadonlySet<string> | null;
  workloadUid: string | null;
  /** The last message, as JSON, and the set it named. */
  sent: string | null;
  sentSet: string | null;
  /** Start of the wait for the program of the current set; null when it does not wait. */
  waitingSinceMs: number | null;
  timer: Timer | null;
}

interface WatchingThread {
  readonly send: SendToThread;
  /** Sets whose program the thread has, with the number of its pods that use each. */
  readonly sets: Map<string, number>;
  readonly watches: Map<string, Watch>;
}

/** The policy of an unknown pod: it has no workload, so the thread admits nothing. */
const NO_POLICY = { setId: '', unknown: [], pending: false, denyAll: null } as const;

/**
 * Sends each listener thread the workload, the services and the policies of the pods that it serves, and sends them again on
 * every change. A thread gets the program of a policy set before the first message that names the set.
 */
export class Watches {
  readonly #deps: WatchDeps;
  readonly #threads = new Map<number, WatchingThread>();
  #enabled = false;

  constructor(deps: WatchDeps) {
    this.#deps = deps;
  }

  /** Begins to send, because the state is complete. */
  enable(): void {
    this.#enabled = true;
  }

  /** Connects a thread; replaces an earlier one of the same number. */
  connect(number: number, send: SendToThread): void {
    this.disconnect(number);
    this.#threads.set(number, { send, sets: new Map(), watches: new Map() });
  }

  /** The thread is gone. */
  disconnect(number: number): void {
    const watches = [...(this.#threads.get(number)?.watches.values() ?? [])];
    this.#threads.delete(number);
    for (const watch of watches) {
      this.#end(watch);
      this.#unpin(watch.pod.uid);
    }
  }

  /** Sends the thread the pod, now and on every change. */
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

  /** Ends {@link watch}. */
  unwatch(number: number, uid: string): void {
    const thread = this.#threads.get(number);
    const watch = thread?.watches.get(uid);
    if (thread === undefined || watch === undefined) return;
    thread.watches.delete(uid);
    this.#end(watch);
    this.#unpin(uid);
    this.#release(thread, watch.sentSet);
  }

  /** Sends pods that the changed lookup ids concern. */
  addressesChanged(ids: ReadonlySet<string>, slice: TimeSlice): Promise<void> {
    return this.#refreshSome(
      slice,
      ({ concerns }) => concerns === null || [...concerns].some((id) => ids.has(id)),
    );
  }

  /** Sends pods whose policies changed; looks at all pods. */
  policiesChanged(slice: TimeSlice): Promise<void> {
    return this.#refreshSome(slice, () => true);
  }

  /** Sends pods that wait for a program. */
  programsChanged(slice: TimeSlice): Promise<void> {
    return this.#refreshSome(slice, ({ waitingSinceMs }) => waitingSinceMs !== null);
  }

  /** Sends to every thread. */
  broadcast(message: StateResponse): void {
    for (const thread of this.#threads.values()) thread.send(message);
  }

  async #refreshSome(slice: TimeSlice, concerned: (watch: Watch) => boolean): Promise<void> {
    // A copy, because watches may end between two slices.
    const all = [...this.#threads.values()].flatMap((thread) => [...thread.watches.values()]);
    for (const watch of all) {
      if (!concerned(watch)) continue;
      this.#refresh(watch);
      await slice.breathe();
    }
  }

  #refresh(watch: Watch): void {
    if (!this.#enabled || watch.thread.watches.get(watch.pod.uid) !== watch) return;
    watch.timer?.cancel();
    watch.timer = null;
    const { store, node } = this.#deps;
    const { namespace, name, serviceAccount } = watch.pod;
    const workload = store.localWorkload(namespace, name, serviceAccount, node);
    if (watch.workloadUid !== null && watch.workloadUid !== workload?.uid) {
      this.#deps.policies.forget(watch.workloadUid);
    }
    if (!this.#pin(watch, workload)) return;
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

  /**
   * On demand: asks for the workload and its services. Returns false while they are not known: the pod keeps what it was told, or
   * waits. Without its services traffic could go around their waypoints.
   */
  #pin(watch: Watch, workload: Workload | null): boolean {
    const { clusterId, demands } = this.#deps;
    if (demands === null) return true;
    const { namespace, name, uid } = watch.pod;
    const own = `${clusterId}//Pod/${namespace}/${name}`;
    const services = Object.keys(workload?.services ?? {});
    const known = demands.pin(uid, [own, ...services]);
    if (workload === null || known) return true;
    watch.concerns = concernsOf(workload);
    return false;
  }

  /** Ends {@link Demands.pin} with the last thread that serves the pod. */
  #unpin(uid: string): void {
    const served = [...this.#threads.values()].some(({ watches }) => watches.has(uid));
    if (!served) this.#deps.demands?.unpin(uid);
  }

  #refreshKnown(watch: Watch, workload: Workload): void {
    const { clock, policies, store } = this.#deps;
    const now = clock.now();
    const effective = policies.effectiveFor(workload, now);
    const { setId } = effective.policy;
    if (!this.#giveProgram(watch, setId, effective.policies, now)) return;
    watch.waitingSinceMs = null;
    this.#tell(watch, { workload, services: store.servicesOf(workload), policy: effective.policy });
    if (effective.pendingUntilMs !== null) {
      this.#refreshAt(watch, effective.pendingUntilMs - now);
    }
  }

  /** Returns false while the evaluator still has time to publish the program; the thread keeps its last policy. */
  #giveProgram(
    watch: Watch,
    setId: string,
    members: Parameters<ProgramRegistry['compile']>[1],
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

  /** Counts one pod less for the set; the thread drops the program with the last pod. */
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
