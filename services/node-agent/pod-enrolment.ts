/** Enrols one pod and un-enrols it: one writer compares the wanted state with the present one. */
import { Backoff } from '../../lib/clock/backoff.ts';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError } from '../../lib/errors/mesh-error.ts';
import { hasListeners, listeningPorts } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import type { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { ZdsAgent, ZdsPod } from '../../lib/zds/agent.ts';
import { eligibility } from './eligibility.ts';
import type { Eligibility, EligibilityRules } from './eligibility.ts';
import type { EnrolmentRows } from './enrolment-rows.ts';
import { LEAVE_DRAIN_MS, PEERS_LEARN_MS, RETRY } from './limits.ts';
import { LISTENER_PORTS, ListenerWatch } from './listener-watch.ts';
import type { Exposure, PodState } from './metrics.ts';
import type { PodFacts } from './proof/findings.ts';
import { PodGuard } from './pod-guard.ts';
import type { GuardDeps } from './pod-guard.ts';
import { PodRules } from './pod-rules.ts';
import type { RuleDeps } from './pod-rules.ts';

/** The dependencies that the pods of a node share. */
export interface PodDeps extends RuleDeps, GuardDeps {
  readonly zds: Pick<ZdsAgent, 'ensure' | 'del' | 'forget' | 'served'>;
  readonly rows: Pick<EnrolmentRows, 'set' | 'delete'>;
  readonly eligibility: EligibilityRules;
  /** Time that carried connections of a leaving pod have. */
  readonly drainMs: number;
  /** Returns whether another enrolled pod lives in this namespace. */
  readonly shared: (identity: NetnsIdentity, uid: string) => boolean;
  /** Fails the actor when the promise rejects, which is a defect. */
  readonly supervise: (work: Promise<void>) => void;
  /** Called when the pod is gone and nothing is left to do. */
  readonly onGone: (uid: string) => void;
}

/** Brings one pod to its state after each {@link update} or {@link kick}. */
export class PodEnrolment {
  readonly uid: string;
  readonly guard: PodGuard;
  state: PodState = 'waiting';
  /** Why the last attempt failed. */
  reason: string | null = null;
  driftRepairs = 0;
  readonly #deps: PodDeps;
  readonly #rules: PodRules;
  readonly #listeners = new ListenerWatch();
  readonly #backoff = new Backoff(RETRY);
  readonly #firstAttempt = Promise.withResolvers<void>();
  #record: PodRecord | null = null;
  /** Whether a proxy may know the pod. */
  #announced = false;
  #restartServing = false;
  #leavingSinceMs: number | null = null;
  #running = false;
  #work = Promise.resolve();
  #stopped = false;
  #departing = false;
  #again = false;
  #retry: Timer | null = null;
  #changed = new AbortController();

  constructor(uid: string, deps: PodDeps) {
    this.uid = uid;
    this.#deps = deps;
    this.#rules = new PodRules(uid, deps);
    this.guard = new PodGuard(deps, this.#rules);
  }

  get record(): PodRecord | null {
    return this.#record;
  }

  get exposure(): Exposure | null {
    return this.guard.exposure;
  }

  /** The namespace that has the rules, while this agent holds it. */
  get netns(): NetnsIdentity | null {
    return this.#rules.netns?.identity ?? null;
  }

  /** The path or the number of the namespace, for people; null while it is not found. */
  get netnsName(): string | null {
    const { netns } = this;
    return this.#record?.netns ?? (netns === null ? null : `net:[${netns.inode}]`);
  }

  /** True while enrolled or to be enrolled. */
  get wanted(): boolean {
    if (this.#record === null || this.#departing) return false;
    return eligibility(this.#record, this.#deps.eligibility).enrol;
  }

  /** Whether the last attempt has brought the pod out of the mesh. */
  get hasLeft(): boolean {
    return this.#record === null || (this.state === 'outside' && this.reason === null);
  }

  /** Resolves when no attempt is under way. */
  get settled(): Promise<void> {
    return this.#work;
  }

  /** Resolves when the first attempt to bring the pod to its state has ended. */
  get attempted(): Promise<void> {
    return this.#firstAttempt.promise;
  }

  /** The pod for a new proxy: to serve it, or to keep it while its rules are not verified. Null = not to be sent. */
  get offer(): ZdsPod | null {
    if (!this.wanted || this.#record === null) return null;
    return this.#offer(this.#record, this.#rules.verified ? this.#rules.netns : null);
  }

  /** Sets the pod's record; null = the pod is gone. */
  update(record: PodRecord | null): void {
    this.#record = record;
    this.#changed.abort(new Error('the pod changed'));
    this.#changed = new AbortController();
    this.#backoff.reset();
    this.kick();
  }

  /** Checks the pod again now. */
  kick(): void {
    if (this.#stopped) return;
    this.#retry?.cancel();
    this.#again = true;
    if (this.#running) return;
    this.#work = this.#run();
    this.#deps.supervise(this.#work);
  }

  /** Reads the pod's rules and listeners back and sends a canary. Null when it is not to be enrolled. */
  async prove(): Promise<PodFacts | null> {
    await this.#work;
    const record = this.#record;
    if (record === null || !this.wanted) return null;
    const read = await this.#rules.read(record);
    const { state, exposure, reason } = this;
    return {
      pod: `${record.namespace}/${record.name}`,
      state,
      exposure,
      reason,
      differences: read?.differences ?? null,
      missingPorts: ListenerWatch.missing(read?.listening ?? []),
      canary: read?.canary ?? null,
    };
  }

  /** Cuts the pod off if it is open. */
  cutOpen(): void {
    if (this.guard.allow()) this.kick();
  }

  /** Handles that a proxy came or went. */
  proxiesChanged(): void {
    const { offer } = this;
    if (offer?.netns && !this.#deps.zds.served(offer)) this.kick();
  }

  /** Looks for changes of rules, listeners or the namespace. It runs no process and starts repairs without waiting for them. */
  checkDrift(how: 'quick' | 'full'): void {
    const record = this.#record;
    const { netns } = this.#rules;
    if (this.#running || record === null || netns === null || !this.wanted) return;
    // The next attempt is due; one every second for each pod would be too many where all fail.
    if (this.guard.failing) return;
    const unchanged = this.#rules.unchanged(record, how);
    // Before the kick, which may replace the namespace.
    this.#checkListeners(netns);
    if (!unchanged) this.kick();
  }

  /**
   * Removes the pod's rules, because the agent leaves the node for good. Proxies are not told: until they end, they serve peers
   * that do not know it yet. Resolves after the attempt.
   */
  async leaveNode(): Promise<void> {
    this.#departing = true;
    this.update(this.#record);
    await this.settled;
  }

  /** Forgets the pod, because the agent stops. Resolves once what was being written is written; starts nothing more. */
  async release(): Promise<void> {
    this.#stopped = true;
    this.#again = false;
    this.#retry?.cancel();
    this.#changed.abort(new Error('the agent stops'));
    this.#rules.stop();
    await this.#work;
    this.#rules.drop();
  }

  async #run(): Promise<void> {
    this.#running = true;
    try {
      while (this.#again) {
        this.#again = false;
        await this.#attempt();
        this.#firstAttempt.resolve();
      }
    } finally {
      this.#running = false;
    }
  }

  async #attempt(): Promise<void> {
    const { log, metrics, clock } = this.#deps;
    try {
      await this.#step();
      this.reason = null;
      this.#backoff.reset();
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      if (this.#stopped) return;
      const { code, message } = error;
      const repeated = this.reason === message;
      this.reason = message;
      metrics.reconcileFailed(code);
      const line = { ...this.#name(), code, reason: message };
      if (repeated) log.debug(line, 'pod.not-reconciled');
      else {
        log.warn(line, 'pod.not-reconciled');
        if (this.#record !== null) this.#deps.tell(this.#record, 'MeshEnrolmentFailed', message);
      }
      if (code === 'NETNS_RULES' && this.wanted && this.#record !== null) {
        await this.guard.failed(this.#record, message);
      }
      // A proxy that connects starts the next attempt.
      if (code === 'ZDS_NO_PROXY') return;
      this.#retry = clock.after(this.#backoff.next(), () => this.kick());
    }
  }

  async #step(): Promise<void> {
    const record = this.#record;
    if (record === null) return this.#gone();
    const decision = eligibility(record, this.#deps.eligibility);
    return this.wanted ? this.#enrol(record) : this.#leave(record, decision);
  }

  async #enrol(record: PodRecord): Promise<void> {
    const { zds, log, metrics } = this.#deps;
    this.#leavingSinceMs = null;
    if ((await this.guard.open(record)) || this.state === 'outside') this.state = 'waiting';
    if ((await this.#rules.write(record)) === 'repaired') {
      this.driftRepairs += 1;
      metrics.driftRepaired('rules');
    }
    this.guard.written(record);
    if (this.#outdated(record)) return;
    this.#setState(record, this.state === 'enabled' ? 'enabled' : 'pending');
    if (this.#restartServing) {
      this.#restartServing = false;
      await zds.del(this.uid);
    }
    this.#announced = true;
    await zds.ensure(this.#offer(record, this.#rules.netns));
    if (this.#outdated(record)) return;
    if (this.state !== 'enabled') log.info(this.#name(), 'pod.enrolled');
    this.#setState(record, 'enabled');
    // A proxy that believes it serves the pod has only confirmed it again.
    const { netns } = this.#rules;
    if (this.#listeners.repairing && netns !== null) this.#checkListeners(netns);
  }

  async #leave(record: PodRecord, decision: Eligibility): Promise<void> {
    const { netns } = this.#rules;
    if (netns !== null) {
      await this.#unenrol(netns);
      return;
    }
    this.#deps.rows.delete(this.uid);
    // Such namespaces have another mesh's rules under the same names, or are the node's own.
    const foreign = decision.reason === 'sidecar' || decision.reason === 'host-network';
    if (this.state === 'waiting' && !foreign) await this.#removeRemains(record);
    this.state = 'outside';
  }

  /** Removes rules of an enrolment that ended while no agent ran. */
  async #removeRemains(record: PodRecord): Promise<void> {
    try {
      await this.#rules.open(record);
    } catch (error) {
      // A namespace that is gone has no rules; a pod that is not wanted need not have one.
      if (error instanceof MeshError && error.code === 'NETNS_UNAVAILABLE') return;
      throw error;
    }
    try {
      await this.#removeRules();
    } finally {
      this.#rules.drop();
    }
  }

  /** Un-enrols the pod; docs/decisions/un-enrolment.md explains the order. */
  async #unenrol(netns: NetnsHandle): Promise<void> {
    const { clock, log, rows, zds } = this.#deps;
    const drainMs = this.#departing ? LEAVE_DRAIN_MS : this.#deps.drainMs;
    const { signal } = this.#changed;
    if (this.state !== 'leaving') log.info(this.#name(), 'pod.leaving');
    this.state = 'leaving';
    this.#leavingSinceMs ??= clock.monotonic();
    const sinceMs = this.#leavingSinceMs;
    rows.delete(this.uid);
    // It may talk in the clear from here on.
    await this.guard.leave();
    if (this.#rules.verified) await this.#rules.stopRedirecting();
    await waitUntil(clock, sinceMs + PEERS_LEARN_MS, signal);
    if (signal.aborted) return;
    if (this.#announced && !this.#departing) await zds.del(this.uid);
    this.#announced = false;
    await waitUntil(clock, sinceMs + PEERS_LEARN_MS + drainMs, signal);
    if (signal.aborted) return;
    await this.#removeRules();
    this.#rules.drop();
    this.#leavingSinceMs = null;
    this.state = 'outside';
    log.info({ ...this.#name(), netns: netns.identity.inode }, 'pod.unenrolled');
  }

  async #removeRules(): Promise<void> {
    const { shared, log } = this.#deps;
    const { identity } = present(this.#rules.netns, 'rules are removed from an open namespace');
    if (shared(identity, this.uid)) log.info(this.#name(), 'pod.rules-kept-for-another');
    else await this.#rules.remove();
  }

  /** Handles a pod that is gone. Its rules ended with its namespace. */
  async #gone(): Promise<void> {
    const { rows, zds, onGone } = this.#deps;
    rows.delete(this.uid);
    if (this.#announced) await zds.del(this.uid);
    this.#announced = false;
    // A pod of the same uid may have come in the meantime.
    if (this.#record !== null) return;
    this.#rules.drop();
    onGone(this.uid);
  }

  #checkListeners(netns: NetnsHandle): void {
    const { clock, log, metrics, zds } = this.#deps;
    const { offer } = this;
    if (this.state !== 'enabled' || offer === null || !zds.served(offer)) return;
    const { fd } = netns;
    const missing = hasListeners(fd, LISTENER_PORTS)
      ? []
      : ListenerWatch.missing(listeningPorts(fd));
    const repair = this.#listeners.decide(missing, clock.monotonic());
    if (repair === 'none') return;
    this.#restartServing = repair === 'restart';
    zds.forget(this.uid);
    this.driftRepairs += 1;
    metrics.driftRepaired('listeners');
    log.warn({ ...this.#name(), missing, repair }, 'pod.listeners-repaired');
    this.kick();
  }

  /** Returns whether the pod has changed since; then the next round handles it. */
  #outdated(record: PodRecord): boolean {
    return this.#stopped || this.#record !== record;
  }

  #setState(record: PodRecord, state: 'pending' | 'enabled'): void {
    this.state = state;
    const { namespace, name, serviceAccount, addresses } = record;
    const podUid = this.uid;
    const netns = present(this.netnsName, 'a pod with rules has a namespace');
    this.#deps.rows.set(this.uid, {
      enrolment: { podUid, namespace, name, serviceAccount, netns, addresses, state },
      inherited: this.#rules.inherited,
    });
  }

  #offer(record: PodRecord, netns: NetnsHandle | null): ZdsPod {
    const { name, namespace, serviceAccount } = record;
    return { uid: this.uid, info: { name, namespace, serviceAccount }, netns };
  }

  #name(): { uid: string; namespace?: string; pod?: string } {
    const { uid } = this;
    if (this.#record === null) return { uid };
    return { uid, namespace: this.#record.namespace, pod: this.#record.name };
  }
}

/** Resolves at that time, or at once when the signal aborts, which the caller checks. */
async function waitUntil(clock: Clock, atMs: number, signal: AbortSignal): Promise<void> {
  const leftMs = atMs - clock.monotonic();
  if (leftMs > 0) await pause(clock, leftMs, signal);
}
