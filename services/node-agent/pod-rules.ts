/** Holds the namespace of one pod and the redirection in it. */
import { statSync } from 'node:fs';
import type { Clock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { listeningPorts, sameNetns, writeSysctl } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Fingerprint, Redirector, RedirectTarget } from '../../lib/redirect/apply.ts';
import { resetConnections } from '../../lib/redirect/reset-connections.ts';
import type { FamilyRules } from '../../lib/redirect/rules.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { AgentMetrics } from './metrics.ts';
import type { PodNamespaces } from './netns/pod-namespaces.ts';
import { sendCanary } from './proof/canary.ts';
import type { CanaryResult } from './proof/canary.ts';
import type { RuleSets } from './rule-sets.ts';
import type { Slots } from '../../lib/async/slots.ts';

/** Settings of conntrack that keep connections intact which are older than the rules. */
const ESTABLISHED = [
  ['net.netfilter.nf_conntrack_tcp_loose', '0'],
  ['net.netfilter.nf_conntrack_tcp_be_liberal', '1'],
] as const;
const MIGRATE = 'net.ipv4.tcp_migrate_req';

/** The dependencies that the pods of a node share to write rules. */
export interface RuleDeps {
  readonly redirector: Redirector;
  readonly slots: Slots;
  /** Held while a pod's rules are read for a proof. */
  readonly proofs: Slots;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: AgentMetrics;
  readonly ruleSets: RuleSets;
  /** Whether connections from before the redirection go on outside the mesh. */
  readonly existing: 'keep' | 'reset';
  readonly namespaces: Pick<PodNamespaces, 'open'>;
  /** The namespaces of the agent and of its node, where no rule may be written. */
  readonly ownNamespaces: readonly NetnsIdentity[];
  /** The directory where `/proc/sys` can be written. */
  readonly sysctlDir: string;
}

/** A setting of a pod that could not be written, and the reason. */
interface Unset {
  readonly setting: string;
  readonly value: string;
  readonly reason: string;
}

/** A namespace as a proof reads it. */
export interface ReadNetns {
  /** The differences from the expected rules; null where they cannot be read. */
  readonly differences: readonly string[] | null;
  readonly listening: readonly number[];
  readonly canary: CanaryResult;
}

/** The result of {@link PodRules.write}. `repaired`: somebody had changed earlier rules. */
export type WriteOutcome = 'kept' | 'written' | 'repaired';

/** Holds at most one namespace open. Calls must not overlap, except {@link PodRules.unchanged}. */
export class PodRules {
  /** Whether the pod was redirected correctly when this process first looked, by an earlier agent. */
  inherited = false;
  readonly #deps: RuleDeps;
  readonly #uid: string;
  #netns: NetnsHandle | null = null;
  /** The rules last verified in this namespace; null before the first time. */
  #applied: readonly FamilyRules[] | null = null;
  #fingerprint: Fingerprint | null = null;
  /** Whether connections may be from a time without redirection. */
  #unprotected = false;
  #stopped = false;

  constructor(uid: string, deps: RuleDeps) {
    this.#uid = uid;
    this.#deps = deps;
  }

  get netns(): NetnsHandle | null {
    return this.#netns;
  }

  /** True while the namespace is known to have its rules. */
  get verified(): boolean {
    return this.#applied !== null;
  }

  /**
   * Opens the pod's namespace; returns true when it differs from the present one. Rejects with NETNS_UNAVAILABLE
   * when there is none, or when it is that of the node or of the agent.
   */
  async open(record: PodRecord): Promise<boolean> {
    const opened = await this.#deps.namespaces.open(record);
    if (this.#deps.ownNamespaces.some((own) => sameNetns(opened.identity, own))) {
      opened.release();
      throw new MeshError(
        'NETNS_UNAVAILABLE',
        `the namespace of pod ${record.uid} is that of the node or of its agent`,
      );
    }
    if (this.#netns !== null && sameNetns(this.#netns.identity, opened.identity)) {
      opened.release();
      return false;
    }
    if (this.#netns !== null) {
      this.#deps.log.info(
        { uid: this.#uid, netns: opened.identity.inode },
        'pod.namespace-replaced',
      );
    }
    this.drop();
    this.#netns = opened;
    return true;
  }

  /** Writes the rules that the record asks for, and verifies them. Rejects with NETNS_RULES when that fails. */
  async write(record: PodRecord): Promise<WriteOutcome> {
    const { log, redirector } = this.#deps;
    const expected = this.#expected(record);
    const unset = this.#applied === null ? this.#leaveEstablishedAlone() : [];
    const { repaired, fresh, redirected } = await this.#hold(async (target) => {
      const result = await this.#timed(() => redirector.apply(target, expected));
      this.#fingerprint = result.fingerprint;
      return result;
    });
    for (const setting of unset) this.#leaveEstablishedAloneNow(setting);
    const before = this.#applied;
    if (before === null && !redirected) this.#unprotected = true;
    await this.#endUnprotected();
    this.#applied = expected;
    this.#allowMigration();
    if (before === null) this.inherited = redirected;
    if (repaired.length === 0) return 'kept';
    const drifted = before !== null && JSON.stringify(before) === JSON.stringify(expected);
    if (drifted) log.warn({ uid: this.#uid, repaired }, 'pod.rules-repaired');
    else if (!fresh) log.info({ uid: this.#uid, repaired }, 'pod.rules-replaced');
    return drifted ? 'repaired' : 'written';
  }

  /** Whether the namespace is cut off. */
  get cutOff(): boolean {
    return this.#netns !== null && this.#deps.redirector.isCut(targetOf(this.#netns));
  }

  /** Returns whether all traffic is certainly redirected as the record asks. */
  async standing(record: PodRecord): Promise<boolean> {
    if (this.#applied !== null && this.unchanged(record, 'full')) return true;
    const expected = this.#expected(record);
    try {
      return await this.#hold((target) => this.#deps.redirector.redirected(target, expected));
    } catch (error) {
      // Rules that cannot be read may be missing.
      return unread(error) !== null;
    }
  }

  /**
   * Reads everything and sends a canary; null when no namespace is held. Changes nothing. Pods that start need the slots: proofs
   * take no more than one of them, and none while a canary is on its way. Rejects with NETNS_RULES after {@link stop}.
   */
  async read(record: PodRecord): Promise<ReadNetns | null> {
    const netns = this.#netns?.retain();
    if (netns === undefined) return null;
    const { clock, redirector, proofs } = this.#deps;
    const expected = this.#expected(record);
    try {
      const differences = await proofs.run(() =>
        this.#inTurn(netns, (target) => redirector.check(target, expected).catch(unread)),
      );
      const listening = listeningPorts(netns.fd);
      return { differences, listening, canary: await sendCanary(netns.fd, clock) };
    } finally {
      netns.release();
    }
  }

  /** Cuts the namespace off until the rules are written, or until it is no longer to have any. Rejects with NETNS_RULES. */
  async cut(): Promise<void> {
    await this.#hold((target) => this.#deps.redirector.cut(target));
  }

  /** Ends a cut. Rejects with NETNS_RULES when that fails. */
  async uncut(): Promise<void> {
    await this.#hold((target) => this.#deps.redirector.uncut(target));
  }

  /** Ends the redirection of new connections; keeps the rules that carried connections need. */
  async stopRedirecting(): Promise<void> {
    const replies = (this.#applied ?? []).map((family) => ({
      ...family,
      rules: family.rules.filter((rule) => rule.table !== 'nat'),
    }));
    await this.#hold((target) => this.#deps.redirector.apply(target, replies));
    this.#applied = null;
  }

  /** Removes all rules from the namespace. */
  async remove(): Promise<void> {
    await this.#hold((target) => this.#deps.redirector.remove(target));
    this.#applied = null;
  }

  /** Returns whether namespace and rules certainly have not changed. It runs no process. True when no namespace is held. */
  unchanged(record: PodRecord, how: 'quick' | 'full'): boolean {
    if (this.#netns === null || this.#applied === null || this.#fingerprint === null) return true;
    const status =
      record.netns === null
        ? undefined
        : statSync(record.netns, { bigint: true, throwIfNoEntry: false });
    // A missing path proves nothing: the pod may be leaving, or its record is about to change.
    if (status !== undefined) {
      const named = { inode: String(status.ino), device: String(status.dev) };
      if (!sameNetns(this.#netns.identity, named)) return false;
    }
    const target = targetOf(this.#netns);
    return this.#deps.redirector.unchanged(target, this.#applied, this.#fingerprint, how);
  }

  /** Ends work that waits for its turn; what runs goes on. */
  stop(): void {
    this.#stopped = true;
  }

  /** Releases the namespace without a change. */
  drop(): void {
    this.#netns?.release();
    this.#netns = null;
    this.#applied = null;
    this.#fingerprint = null;
    this.inherited = false;
    this.#unprotected = false;
  }

  /** Ends connections that the mesh does not carry, where that is wanted. A failure leaves the pod for another attempt. */
  async #endUnprotected(): Promise<void> {
    const { existing, log } = this.#deps;
    if (this.#unprotected && existing === 'reset') {
      const connections = await this.#hold(({ netnsFd }) => resetConnections(netnsFd));
      if (connections > 0) log.info({ uid: this.#uid, connections }, 'pod.connections-reset');
    }
    this.#unprotected = false;
  }

  /** Runs `work` in its turn, and keeps the namespace open meanwhile. Rejects with NETNS_RULES after {@link stop}. */
  async #hold<T>(work: (target: RedirectTarget) => Promise<T>): Promise<T> {
    const netns = present(this.#netns, 'rules are written to an open namespace').retain();
    try {
      return await this.#inTurn(netns, work);
    } finally {
      netns.release();
    }
  }

  #inTurn<T>(netns: NetnsHandle, work: (target: RedirectTarget) => Promise<T>): Promise<T> {
    return this.#deps.slots.run(() => {
      // The next agent may be at work already.
      if (this.#stopped) throw new MeshError('NETNS_RULES', 'the agent stops');
      return work(targetOf(netns));
    });
  }

  async #timed<T extends { readonly repaired: readonly string[] }>(
    work: () => Promise<T>,
  ): Promise<T> {
    const { clock, metrics } = this.#deps;
    const startedMs = clock.monotonic();
    const result = await work();
    if (result.repaired.length > 0) metrics.rulesWritten((clock.monotonic() - startedMs) / 1_000);
    return result;
  }

  /**
   * Sets conntrack so that older connections stay intact, and returns the settings that do not exist yet.
   *
   * The first rules make the kernel track connections. It would take an older connection for a new one in its middle, redirect
   * it and reset it. `nf_conntrack_tcp_loose` = 0 prevents that. Rules may also move one direction of a tracked connection to
   * another zone, where it is unknown. The other direction then outgrows the window that the kernel last saw and loses its mark.
   * `nf_conntrack_tcp_be_liberal` = 1 prevents that.
   */
  #leaveEstablishedAlone(): readonly Unset[] {
    const netns = present(this.#netns, 'the namespace is about to be written to');
    return ESTABLISHED.flatMap(([setting, value]) => {
      try {
        writeSysctl(netns.fd, setting, value, this.#deps.sysctlDir);
        return [];
      } catch (error) {
        // The setting is absent until the first rules on this machine load conntrack.
        return [{ setting, value, reason: errorText(error) }];
      }
    });
  }

  /** Sets the rest after the rules have loaded conntrack. */
  #leaveEstablishedAloneNow({ setting, value, reason }: Unset): void {
    const { log, sysctlDir } = this.#deps;
    const netns = present(this.#netns, 'the namespace was just written to');
    const facts = { uid: this.#uid, setting };
    try {
      writeSysctl(netns.fd, setting, value, sysctlDir);
      // Only packets since the rules came may have been taken for new connections.
      log.info({ ...facts, reason }, 'pod.established-late');
    } catch (error) {
      log.warn({ ...facts, reason: errorText(error) }, 'pod.established-at-risk');
    }
  }

  /** Makes connections in the queue of a closing listener move to another listener of its group. */
  #allowMigration(): void {
    const netns = present(this.#netns, 'the namespace was just written to');
    try {
      writeSysctl(netns.fd, MIGRATE, '1', this.#deps.sysctlDir);
    } catch (error) {
      // Kernels before 5.14 have no such setting; the proxy then drains the queue itself.
      const facts = { uid: this.#uid, setting: MIGRATE, reason: errorText(error) };
      this.#deps.log.info(facts, 'pod.no-migration');
    }
  }

  #expected(record: PodRecord): readonly FamilyRules[] {
    const { rules, warnings } = this.#deps.ruleSets.of(record.annotations);
    if (warnings.length > 0 && this.#applied === null) {
      this.#deps.log.warn({ uid: this.#uid, warnings }, 'pod.annotations-ignored');
    }
    return rules;
  }
}

/** Stands for rules that the programs cannot read. */
function unread(error: unknown): null {
  if (error instanceof MeshError && error.code === 'NETNS_RULES') return null;
  throw error;
}

function targetOf(netns: NetnsHandle): RedirectTarget {
  return { netnsFd: netns.fd, inode: netns.identity.inode };
}
