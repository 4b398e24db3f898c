/** Holds the pods of the node: gives each its record and checks all of them regularly. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Slots } from '../../lib/async/slots.ts';
import type { Timer } from '../../lib/clock/clock.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { sameNetns } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import type { ZdsPod } from '../../lib/zds/agent.ts';
import { CutLimit } from './cut-limit.ts';
import { DRIFT_SLICE, FULL_CHECK_MS, LEAVE_RETRY_MS } from './limits.ts';
import { PodEnrolment } from './pod-enrolment.ts';
import type { PodDeps } from './pod-enrolment.ts';
import type { Exposure, PodState } from './metrics.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { PodFacts } from './proof/findings.ts';
import type { PodSet } from './pod-source.ts';

/** A line of `GET /node-agent/enrolments`. */
export interface EnrolmentView {
  readonly podUid: string;
  readonly namespace: string;
  readonly name: string;
  readonly state: PodState;
  readonly netns: string | null;
  readonly reason?: string;
  readonly driftRepairs: number;
  readonly exposure?: Exposure;
}

/** The dependencies of {@link NodeEnrolments}. */
export type NodeDeps = Omit<PodDeps, 'shared' | 'onGone' | 'mayCut' | 'onCutFound' | 'proofs'>;

/** Holds the pods by uid. */
export class NodeEnrolments {
  readonly #deps: NodeDeps;
  readonly #pods = new Map<string, PodEnrolment>();
  readonly #cuts: CutLimit;
  readonly #proofs: Slots;
  #lookedAtAll = false;
  #unreadable: ReadonlySet<string> = new Set();
  #drift: Timer | null = null;
  #checking = false;
  /** Rounds of the drift check so far. */
  #rounds = 0;
  #departing = false;
  #handedOver = false;
  #stopped = false;

  constructor(deps: NodeDeps) {
    this.#deps = deps;
    this.#cuts = new CutLimit(deps.clock);
    this.#proofs = new Slots(() => 1, deps.clock);
  }

  /** Sets the present pods. Resolves when each new one was attempted once. Enrols nothing new once the agent ends. */
  async update(set: PodSet): Promise<void> {
    const { metrics } = this.#deps;
    // The pods may still be followed. Another agent serves them, or none will.
    if (this.#stopped) return;
    this.#unreadable = set.unreadable;
    const attempts: Promise<void>[] = [];
    for (const [uid, record] of set.pods) {
      const known = this.#pods.get(uid);
      if (known?.record === record || (known === undefined && this.#departing)) continue;
      metrics.event(known === undefined ? 'add' : 'update');
      const pod = known ?? this.#create(uid);
      attempts.push(pod.attempted);
      pod.update(record);
    }
    for (const [uid, pod] of this.#pods) {
      if (set.pods.has(uid) || set.unreadable.has(uid) || pod.record === null) continue;
      metrics.event('delete');
      pod.update(null);
    }
    await Promise.all(attempts);
  }

  /** Brings the pod to its state now. Resolves with that state, and the reason when it is not enrolled. */
  async outcome(
    uid: string,
  ): Promise<{ readonly state: PodState; readonly reason: string | null }> {
    const pod = this.#pods.get(uid);
    if (pod === undefined) return { state: 'outside', reason: 'the pod is not known' };
    pod.kick();
    await pod.settled;
    return { state: pod.state, reason: pod.reason };
  }

  /** Returns the pod of the mesh that lives in this namespace, besides that of `except`; null when there is none. */
  holderOf(identity: NetnsIdentity, except: string): PodRecord | null {
    const holder = [...this.#pods.values()].find(
      (pod) =>
        pod.uid !== except && pod.wanted && pod.netns !== null && sameNetns(pod.netns, identity),
    );
    return holder?.record ?? null;
  }

  /** Yields the pods for a proxy that connects. It keeps pods whose record cannot be read. */
  *snapshot(): Generator<ZdsPod> {
    for (const pod of this.#pods.values()) {
      const { offer } = pod;
      if (offer !== null) yield offer;
    }
    const info = { name: '', namespace: '', serviceAccount: '' };
    for (const uid of this.#unreadable) {
      if (!this.#pods.has(uid)) yield { uid, info, netns: null };
    }
  }

  /** Handles that a proxy came or went. */
  proxiesChanged(): void {
    if (this.#stopped) return;
    for (const pod of this.#pods.values()) pod.proxiesChanged();
  }

  /** Starts looking for drift every `intervalMs`, and reads all rules of each pod back every {@link FULL_CHECK_MS}. */
  watch(intervalMs: number): void {
    const roundsOfFull = Math.max(1, Math.floor(FULL_CHECK_MS / intervalMs));
    this.#drift = this.#deps.clock.every(intervalMs, () => {
      if (!this.#checking) this.#deps.supervise(this.#checkDrift(roundsOfFull));
    });
  }

  /** Proves all pods that are to be enrolled, whatever their state. */
  async prove(): Promise<readonly PodFacts[]> {
    const facts = await Promise.all([...this.#pods.values()].map((pod) => pod.prove()));
    return facts.filter((pod) => pod !== null);
  }

  /** The records of the pods that are to be enrolled. */
  wanted(): readonly PodRecord[] {
    return [...this.#pods.values()].flatMap((pod) => (pod.wanted && pod.record) || []);
  }

  /** Cuts off the pods that are open, whatever their number. Returns how many those are. */
  cutOpen(): number {
    const open = [...this.#pods.values()].filter(({ exposure }) => exposure === 'open');
    for (const pod of open) pod.cutOpen();
    return open.length;
  }

  /** Counts the pods that lack rules. */
  exposures(): ReadonlyMap<Exposure, number> {
    const counts = new Map<Exposure, number>([
      ['cut', 0],
      ['open', 0],
    ]);
    for (const { exposure } of this.#pods.values()) {
      if (exposure !== null) counts.set(exposure, (counts.get(exposure) ?? 0) + 1);
    }
    return counts;
  }

  /** Counts pods by state. */
  states(): ReadonlyMap<PodState, number> {
    const counts = new Map<PodState, number>(
      (['outside', 'waiting', 'pending', 'enabled', 'leaving'] as const).map((state) => [state, 0]),
    );
    for (const { state } of this.#pods.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
    return counts;
  }

  /** Lists every pod that is enrolled, is to be enrolled, or leaves. */
  view(): readonly EnrolmentView[] {
    return [...this.#pods.values()].flatMap((pod) => {
      const { record, uid, state, reason, driftRepairs, exposure } = pod;
      if (record === null || (state === 'outside' && reason === null) || !(pod.wanted || pod.netns))
        return [];
      const { namespace, name } = record;
      const netns = pod.netnsName;
      const why = reason === null ? {} : { reason };
      const exposed = exposure === null ? {} : { exposure };
      return [{ podUid: uid, namespace, name, state, netns, ...why, driftRepairs, ...exposed }];
    });
  }

  /**
   * Removes the rules of every pod, because the agent leaves the node for good. Repeats what fails while `mayRepeat` returns true,
   * and logs the pods that are left.
   */
  async leaveNode(mayRepeat: () => boolean): Promise<void> {
    this.#departing = true;
    this.#drift?.cancel();
    await Promise.all([...this.#pods.values()].map((pod) => this.#takeOut(pod, mayRepeat)));
  }

  /** Ends {@link leaveNode} where it stands, because the next agent comes to the node, and stops. */
  handOver(): Promise<void> {
    this.#handedOver = true;
    return this.stop();
  }

  /** Stops without a change: rules and listeners stay. Resolves once nothing is written any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#drift?.cancel();
    const pods = [...this.#pods.values()];
    this.#pods.clear();
    await Promise.all(pods.map((pod) => pod.release()));
  }

  /** Rules that are left would lead every connection of the pod to closed ports, and no agent follows that removes them. */
  async #takeOut(pod: PodEnrolment, mayRepeat: () => boolean): Promise<void> {
    const { clock, log } = this.#deps;
    await pod.leaveNode();
    while (!pod.hasLeft && !this.#stopped && mayRepeat()) {
      await clock.sleep(LEAVE_RETRY_MS);
      if (!pod.hasLeft) pod.kick();
      await pod.settled;
    }
    if (pod.hasLeft || this.#handedOver) return;
    const { uid, record, reason } = pod;
    log.error(
      { uid, namespace: record?.namespace, pod: record?.name, reason },
      'pod.not-unenrolled',
    );
  }

  #create(uid: string): PodEnrolment {
    const pod = new PodEnrolment(uid, {
      ...this.#deps,
      proofs: this.#proofs,
      mayCut: () => this.#mayCut(uid),
      onCutFound: () => this.#cuts.count(uid),
      shared: (identity, except) => this.holderOf(identity, except) !== null,
      onGone: (gone) => {
        if (this.#pods.get(gone)?.record === null) this.#pods.delete(gone);
      },
    });
    this.#pods.set(uid, pod);
    return pod;
  }

  /** Null until each pod of the first set was looked at: the agent before this one may have cut off enough pods. */
  #mayCut(uid: string): boolean | null {
    const pods = [...this.#pods.values()];
    this.#lookedAtAll ||= pods.every(({ wanted, guard }) => !wanted || guard.lookedAt);
    if (!this.#lookedAtAll) return null;
    const cut = pods.filter(({ exposure }) => exposure === 'cut').map((pod) => pod.uid);
    return this.#cuts.allow(uid, { pods: this.wanted().length, cut });
  }

  #checkPod(pod: PodEnrolment, how: 'quick' | 'full'): void {
    try {
      pod.checkDrift(how);
    } catch (error) {
      // A pod that cannot be checked (no descriptors left, say) is checked again next time.
      if (!(error instanceof MeshError)) throw error;
      this.#deps.metrics.reconcileFailed(error.code);
      this.#deps.log.warn({ uid: pod.uid, reason: error.message }, 'pod.not-checked');
    }
  }

  async #checkDrift(roundsOfFull: number): Promise<void> {
    this.#checking = true;
    this.#rounds += 1;
    try {
      let checked = 0;
      for (const pod of this.#pods.values()) {
        if (this.#stopped) return;
        // Each round reads other pods fully, so that no round takes long.
        const full = (this.#rounds + checked) % roundsOfFull === 0;
        this.#checkPod(pod, full ? 'full' : 'quick');
        checked += 1;
        if (checked % DRIFT_SLICE === 0) await nextTurn();
      }
    } finally {
      this.#checking = false;
    }
  }
}
