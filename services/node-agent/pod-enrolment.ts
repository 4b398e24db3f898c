/** One pod's way into the mesh and out of it: one writer, driven by what is wanted and what is there. */
import { statSync } from 'node:fs';
import { Backoff } from '../../lib/clock/backoff.ts';
import type { Clock, Timer } from '../../lib/clock/clock.ts';
import { MeshError, asMeshError } from '../../lib/errors/mesh-error.ts';
import { errnoOf } from '../../lib/linux/errno.ts';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listeningPorts, sameNetns, writeSysctl } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Fingerprint, Redirector, RedirectTarget } from '../../lib/redirect/apply.ts';
import { podRedirect } from '../../lib/redirect/pod-options.ts';
import type { RedirectDefaults } from '../../lib/redirect/pod-options.ts';
import { PROXY_PORTS, redirectRules } from '../../lib/redirect/rules.ts';
import type { FamilyRules } from '../../lib/redirect/rules.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { ZdsAgent, ZdsPod } from '../../lib/zds/agent.ts';
import { eligibility } from './eligibility.ts';
import type { Eligibility } from './eligibility.ts';
import type { EnrolmentRows } from './enrolment-rows.ts';
import { PEERS_LEARN_MS, RESTART_SERVING, RETRY } from './limits.ts';
import type { AgentMetrics } from './metrics.ts';
import type { Slots } from './slots.ts';

/**
 * `outside`: not to be enrolled. `waiting`: its namespace or rules are not ready. `pending`: rules stand, no proxy
 * confirmed. `enabled`: served. `leaving`: its carried connections may end.
 */
export type PodState = 'outside' | 'waiting' | 'pending' | 'enabled' | 'leaving';

/** What the pods of a node share. */
export interface PodDeps {
  readonly zds: Pick<ZdsAgent, 'ensure' | 'del' | 'forget' | 'served'>;
  readonly rows: Pick<EnrolmentRows, 'set' | 'delete'>;
  readonly redirector: Redirector;
  readonly slots: Slots;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: AgentMetrics;
  readonly redirect: RedirectDefaults;
  readonly excludedNamespaces: readonly string[];
  /** The agent's own namespace, where no rule may ever be written. */
  readonly ownNetns: NetnsIdentity;
  /** How long carried connections of a pod that leaves may run on. */
  readonly drainMs: number;
  /** Whether another enrolled pod lives in this namespace. */
  readonly shared: (identity: NetnsIdentity, uid: string) => boolean;
  /** Fails the actor when the promise rejects: a defect. */
  readonly supervise: (work: Promise<void>) => void;
  /** The pod is gone and nothing of it is left to do. */
  readonly onGone: (uid: string) => void;
}

const LISTENER_PORTS = [PROXY_PORTS.outbound, PROXY_PORTS.inbound, PROXY_PORTS.hbone];

/** Brings one pod to its state whenever {@link update} or {@link kick} say so. */
export class PodEnrolment {
  readonly uid: string;
  state: PodState = 'waiting';
  /** Why the last attempt failed. */
  reason: string | null = null;
  driftRepairs = 0;
  readonly #deps: PodDeps;
  readonly #backoff = new Backoff(RETRY);
  readonly #restarts = new Backoff(RESTART_SERVING);
  readonly #firstAttempt = Promise.withResolvers<void>();
  #record: PodRecord | null = null;
  #netns: NetnsHandle | null = null;
  /** The rules last verified in this namespace, as text; null before the first time. */
  #applied: string | null = null;
  #fingerprint: Fingerprint = null;
  #inherited = false;
  #announced = false;
  #restartServing = false;
  #nextRestartAtMs = 0;
  #leavingSinceMs: number | null = null;
  #running = false;
  #stopped = false;
  #again = false;
  #retry: Timer | null = null;
  #changed = new AbortController();

  constructor(uid: string, deps: PodDeps) {
    this.uid = uid;
    this.#deps = deps;
  }

  get record(): PodRecord | null {
    return this.#record;
  }

  /** The namespace rules were written to, while this agent holds it. */
  get netns(): NetnsIdentity | null {
    return this.#netns?.identity ?? null;
  }

  /** True while enrolled or to be enrolled. */
  get wanted(): boolean {
    return this.#record !== null && eligibility(this.#record, this.#deps.excludedNamespaces).enrol;
  }

  /** Resolves when the pod was brought to its state, or failed to be, for the first time. */
  get attempted(): Promise<void> {
    return this.#firstAttempt.promise;
  }

  /** What a new proxy is to be told: serve it, or keep it while its rules are not verified. Null = nothing. */
  get offer(): ZdsPod | null {
    if (!this.wanted || this.#record === null) return null;
    return this.#offer(this.#record, this.#applied === null ? null : this.#netns);
  }

  /** The pod as it is now; null = gone. */
  update(record: PodRecord | null): void {
    this.#record = record;
    this.#changed.abort(new Error('the pod changed'));
    this.#changed = new AbortController();
    this.#backoff.reset();
    this.kick();
  }

  /** Looks at the pod again, now. */
  kick(): void {
    if (this.#stopped) return;
    this.#retry?.cancel();
    this.#again = true;
    if (!this.#running) this.#deps.supervise(this.#run());
  }

  /** A proxy came or went. */
  proxiesChanged(): void {
    const { offer } = this;
    if (offer?.netns && !this.#deps.zds.served(offer)) this.kick();
  }

  /** Looks for rules, listeners or a namespace that are not as they were left. Quick; repairs follow by themselves. */
  checkDrift(): void {
    const record = this.#record;
    if (this.#running || record === null || this.#netns === null || this.#applied === null) return;
    if (!this.wanted) return;
    const { redirector } = this.#deps;
    if (
      !this.#sameFile(record, this.#netns) ||
      !redirector.unchanged(this.#target(this.#netns), this.#expected(record), this.#fingerprint)
    ) {
      this.kick();
      return;
    }
    this.#checkListeners(this.#netns);
  }

  /** Forgets the pod without touching it: the agent stops. */
  release(): void {
    this.#stopped = true;
    this.#again = false;
    this.#retry?.cancel();
    this.#changed.abort(new Error('the agent stops'));
    if (!this.#running) this.#dropNetns();
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
      if (this.#stopped) this.#dropNetns();
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
      else log.warn(line, 'pod.not-reconciled');
      // A proxy that connects starts the next attempt.
      if (code === 'ZDS_NO_PROXY') return;
      this.#retry = clock.after(this.#backoff.next(), () => this.kick());
    }
  }

  async #step(): Promise<void> {
    const record = this.#record;
    if (record === null) return this.#gone();
    const decision = eligibility(record, this.#deps.excludedNamespaces);
    return decision.enrol ? this.#enrol(record) : this.#leave(record, decision);
  }

  async #enrol(record: PodRecord): Promise<void> {
    const { zds, log } = this.#deps;
    this.#leavingSinceMs = null;
    const netns = this.#openNetns(record);
    await this.#writeRules(record, netns);
    if (this.#outdated(record)) return;
    if (this.state !== 'enabled') this.#setState(record, 'pending');
    else this.#setState(record, 'enabled');
    if (this.#restartServing) {
      this.#restartServing = false;
      await zds.del(this.uid);
    }
    this.#announced = true;
    await zds.ensure(this.#offer(record, netns));
    if (this.#outdated(record)) return;
    if (this.state !== 'enabled') log.info(this.#name(), 'pod.enrolled');
    this.#setState(record, 'enabled');
  }

  /** Whether the pod changed since; the next round sees to it. */
  #outdated(record: PodRecord): boolean {
    return this.#stopped || this.#record !== record;
  }

  async #writeRules(record: PodRecord, netns: NetnsHandle): Promise<void> {
    const { clock, log, metrics, redirector, slots } = this.#deps;
    const expected = this.#expected(record);
    const text = JSON.stringify(expected);
    const target = this.#target(netns);
    netns.retain();
    try {
      const { repaired, fresh } = await slots.run(async () => {
        const startedMs = clock.monotonic();
        const result = await redirector.apply(target, expected);
        if (result.repaired.length > 0) {
          metrics.rulesWritten((clock.monotonic() - startedMs) / 1_000);
        }
        return result;
      });
      this.#fingerprint = redirector.fingerprint(target);
      if (repaired.length > 0 && this.#applied === text) {
        this.driftRepairs += 1;
        metrics.driftRepaired('rules');
        log.warn({ ...this.#name(), repaired }, 'pod.rules-repaired');
      } else if (repaired.length > 0 && !fresh) {
        log.info({ ...this.#name(), repaired }, 'pod.rules-replaced');
      }
      if (this.#applied === null) this.#inherited = repaired.length === 0;
      this.#applied = text;
      this.#allowMigration(netns);
    } finally {
      netns.release();
    }
  }

  /** Connections queued on a listener that closes move to another one of its group. */
  #allowMigration(netns: NetnsHandle): void {
    try {
      writeSysctl(netns.fd, 'net.ipv4.tcp_migrate_req', '1');
    } catch (error) {
      const line = { ...this.#name(), reason: asMeshError(error, 'NATIVE_SYSCALL').message };
      this.#deps.log.debug(line, 'pod.no-request-migration');
    }
  }

  async #leave(record: PodRecord, decision: Eligibility): Promise<void> {
    const mine = this.#netns;
    if (mine !== null) {
      await this.#unenrol(mine);
      return;
    }
    this.#deps.rows.delete(this.uid);
    // Those have rules of others under the same names, or the node's own namespace.
    const foreign = decision.reason === 'sidecar' || decision.reason === 'host-network';
    if (this.state === 'waiting' && !foreign) await this.#removeRemains(record);
    this.state = 'outside';
  }

  /** Rules of an enrolment that ended while no agent ran. */
  async #removeRemains(record: PodRecord): Promise<void> {
    let netns: NetnsHandle;
    try {
      netns = this.#openNetns(record);
    } catch (error) {
      // No namespace, no rules: a pod that is not wanted need not have one.
      if (error instanceof MeshError && error.code === 'NETNS_UNAVAILABLE') return;
      throw error;
    }
    this.#netns = null;
    try {
      await this.#removeRules(netns);
    } finally {
      netns.release();
    }
  }

  /** docs/decisions/un-enrolment.md says why in this order. */
  async #unenrol(netns: NetnsHandle): Promise<void> {
    const { clock, log, rows, zds, redirector, slots, drainMs } = this.#deps;
    const { signal } = this.#changed;
    const firstTime = this.#leavingSinceMs === null;
    this.#leavingSinceMs ??= clock.monotonic();
    this.state = 'leaving';
    rows.delete(this.uid);
    const target = this.#target(netns);
    const applied = this.#applied === null ? [] : (JSON.parse(this.#applied) as FamilyRules[]);
    await slots.run(() => redirector.apply(target, applied.map(repliesOnly)));
    if (firstTime) await sleepUnlessChanged(clock, PEERS_LEARN_MS, signal);
    if (signal.aborted) return;
    if (this.#announced) await zds.del(this.uid);
    this.#announced = false;
    const leftMs = this.#leavingSinceMs + PEERS_LEARN_MS + drainMs - clock.monotonic();
    if (leftMs > 0) await sleepUnlessChanged(clock, leftMs, signal);
    if (signal.aborted) return;
    await this.#removeRules(netns);
    this.#dropNetns();
    this.#leavingSinceMs = null;
    this.state = 'outside';
    log.info(this.#name(), 'pod.unenrolled');
  }

  async #removeRules(netns: NetnsHandle): Promise<void> {
    const { redirector, slots, shared, log } = this.#deps;
    if (shared(netns.identity, this.uid)) {
      log.info(this.#name(), 'pod.rules-kept-for-another');
      return;
    }
    await slots.run(() => redirector.remove(this.#target(netns)));
  }

  /** The rules die with the namespace. */
  async #gone(): Promise<void> {
    const { rows, zds, onGone } = this.#deps;
    rows.delete(this.uid);
    if (this.#announced) await zds.del(this.uid);
    // A pod of the same uid may have come meanwhile.
    if (this.#record !== null) return;
    this.#announced = false;
    this.#dropNetns();
    onGone(this.uid);
  }

  /** The namespace of the record, which may be another than before. NETNS_UNAVAILABLE when there is none. */
  #openNetns(record: PodRecord): NetnsHandle {
    const opened = openRecord(record);
    if (sameNetns(opened.identity, this.#deps.ownNetns)) {
      opened.release();
      throw new MeshError(
        'NETNS_UNAVAILABLE',
        `${record.netns} is the node's own namespace, not that of a pod`,
      );
    }
    if (this.#netns !== null && sameNetns(this.#netns.identity, opened.identity)) {
      opened.release();
      return this.#netns;
    }
    if (this.#netns !== null) this.#deps.log.info(this.#name(), 'pod.namespace-replaced');
    this.#dropNetns();
    this.#leavingSinceMs = null;
    this.#netns = opened;
    this.state = 'waiting';
    return opened;
  }

  #dropNetns(): void {
    this.#netns?.release();
    this.#netns = null;
    this.#applied = null;
    this.#fingerprint = null;
    this.#inherited = false;
  }

  #checkListeners(netns: NetnsHandle): void {
    const { clock, log, metrics, zds } = this.#deps;
    const { offer } = this;
    if (this.state !== 'enabled' || offer === null || !zds.served(offer)) return;
    const open = listeningPorts(netns.fd);
    const missing = LISTENER_PORTS.filter((port) => !open.includes(port));
    if (missing.length === 0) {
      this.#restarts.reset();
      return;
    }
    const nowMs = clock.monotonic();
    if (this.#restarts.attempt > 0 && nowMs < this.#nextRestartAtMs) return;
    // A proxy that thinks it serves the pod only confirms a second Add: then it is told to begin anew.
    this.#restartServing = this.#restarts.attempt > 0;
    this.#nextRestartAtMs = this.#restartServing ? nowMs + this.#restarts.next() : nowMs;
    if (!this.#restartServing) this.#restarts.next();
    zds.forget(this.uid);
    this.driftRepairs += 1;
    metrics.driftRepaired('listeners');
    log.warn({ ...this.#name(), missing, anew: this.#restartServing }, 'pod.listeners-repaired');
    this.kick();
  }

  #setState(record: PodRecord, state: 'pending' | 'enabled'): void {
    this.state = state;
    const { namespace, name, serviceAccount, netns, addresses } = record;
    this.#deps.rows.set(this.uid, {
      enrolment: {
        podUid: this.uid,
        namespace,
        name,
        serviceAccount,
        netns,
        addresses,
        state,
      },
      inherited: this.#inherited,
    });
  }

  #expected(record: PodRecord): readonly FamilyRules[] {
    const { options, warnings } = podRedirect(record.annotations, this.#deps.redirect);
    if (warnings.length > 0 && this.#applied === null) {
      this.#deps.log.warn({ ...this.#name(), warnings }, 'pod.annotations-ignored');
    }
    return redirectRules(options);
  }

  #offer(record: PodRecord, netns: NetnsHandle | null): ZdsPod {
    const { name, namespace, serviceAccount } = record;
    return { uid: this.uid, info: { name, namespace, serviceAccount }, netns };
  }

  #target(netns: NetnsHandle): RedirectTarget {
    return { netnsFd: netns.fd, inode: netns.identity.inode };
  }

  /** Whether the record's path still names the namespace held; a path that is gone says nothing. */
  #sameFile(record: PodRecord, netns: NetnsHandle): boolean {
    const status = statSync(record.netns, { bigint: true, throwIfNoEntry: false });
    if (status === undefined) return true;
    return sameNetns(netns.identity, { inode: String(status.ino), device: String(status.dev) });
  }

  #name(): { uid: string; namespace?: string; pod?: string } {
    const { uid } = this;
    if (this.#record === null) return { uid };
    return { uid, namespace: this.#record.namespace, pod: this.#record.name };
  }
}

function openRecord(record: PodRecord): NetnsHandle {
  try {
    return NetnsHandle.open(record.netns);
  } catch (error) {
    if (errnoOf(error) === null) throw error;
    throw asNetnsError(record, error);
  }
}

function asNetnsError(record: PodRecord, error: unknown): MeshError {
  return new MeshError(
    'NETNS_UNAVAILABLE',
    `network namespace ${record.netns} of pod ${record.uid} cannot be opened: ${errnoOf(error)}`,
    { cause: error, detail: { path: record.netns } },
  );
}

/** What replies of carried connections need; nothing is redirected any more. */
function repliesOnly(family: FamilyRules): FamilyRules {
  return { ...family, rules: family.rules.filter((rule) => rule.table === 'mangle') };
}

/** Resolves after the time, or at once when the pod changes. */
async function sleepUnlessChanged(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  await clock.sleep(ms, signal).catch(() => undefined);
}
