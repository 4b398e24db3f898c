/** The namespace of one pod and the redirection in it. */
import { statSync } from 'node:fs';
import type { Clock } from '../../lib/clock/clock.ts';
import { present } from '../../lib/errors/assert.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import { errnoOf } from '../../lib/linux/errno.ts';
import { NetnsHandle } from '../../lib/linux/netns-handle.ts';
import { sameNetns, writeSysctl } from '../../lib/linux/netns.ts';
import type { NetnsIdentity } from '../../lib/linux/netns.ts';
import type { Logger } from '../../lib/log/logger.ts';
import type { Fingerprint, Redirector, RedirectTarget } from '../../lib/redirect/apply.ts';
import type { FamilyRules } from '../../lib/redirect/rules.ts';
import type { PodRecord } from '../../lib/state/pod-record.ts';
import type { AgentMetrics } from './metrics.ts';
import type { RuleSets } from './rule-sets.ts';
import type { Slots } from '../../lib/async/slots.ts';

/** What leaves connections alone that are older than the rules: a setting and its value. */
const ESTABLISHED = [
  ['net.netfilter.nf_conntrack_tcp_loose', '0'],
  ['net.netfilter.nf_conntrack_tcp_be_liberal', '1'],
] as const;
const MIGRATE = 'net.ipv4.tcp_migrate_req';

/** What the pods of a node share to write rules. */
export interface RuleDeps {
  readonly redirector: Redirector;
  readonly slots: Slots;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: AgentMetrics;
  readonly ruleSets: RuleSets;
  /** The agent's own namespace, where no rule may ever be written. */
  readonly ownNetns: NetnsIdentity;
  /** Where `/proc/sys` can be written. */
  readonly sysctlDir: string;
}

/** A setting of a pod that could not be made, and why. */
interface Unset {
  readonly setting: string;
  readonly value: string;
  readonly reason: string;
}

/** What {@link PodRules.write} did. `repaired`: rules that stood before had been changed by somebody. */
export type WriteOutcome = 'kept' | 'written' | 'repaired';

/** Holds at most one namespace open. Calls do not overlap, {@link PodRules.unchanged} apart. */
export class PodRules {
  /** The pod was redirected as it should be when this process first looked: an earlier one did it. */
  inherited = false;
  readonly #deps: RuleDeps;
  readonly #uid: string;
  #netns: NetnsHandle | null = null;
  /** The rules last verified in this namespace; null before the first time. */
  #applied: readonly FamilyRules[] | null = null;
  #fingerprint: Fingerprint = null;

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
   * Opens the namespace the record names; true when it is another than the one held. NETNS_UNAVAILABLE when there
   * is none, or when it is the node's own.
   */
  open(record: PodRecord): boolean {
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
      return false;
    }
    if (this.#netns !== null) {
      this.#deps.log.info({ uid: this.#uid, netns: record.netns }, 'pod.namespace-replaced');
    }
    this.drop();
    this.#netns = opened;
    return true;
  }

  /** Brings the rules to what the record asks for, and verifies them. NETNS_RULES when that fails. */
  async write(record: PodRecord): Promise<WriteOutcome> {
    const { log, redirector } = this.#deps;
    const expected = this.#expected(record);
    const unset = this.#applied === null ? this.#leaveEstablishedAlone() : [];
    const { repaired, fresh, redirected } = await this.#hold(async (target) => {
      const result = await this.#timed(() => redirector.apply(target, expected));
      this.#fingerprint = redirector.fingerprint(target);
      return result;
    });
    for (const setting of unset) this.#leaveEstablishedAloneNow(setting);
    const before = this.#applied;
    this.#applied = expected;
    this.#allowMigration();
    if (before === null) this.inherited = redirected;
    if (repaired.length === 0) return 'kept';
    const drifted = before !== null && JSON.stringify(before) === JSON.stringify(expected);
    if (drifted) log.warn({ uid: this.#uid, repaired }, 'pod.rules-repaired');
    else if (!fresh) log.info({ uid: this.#uid, repaired }, 'pod.rules-replaced');
    return drifted ? 'repaired' : 'written';
  }

  /** New connections are redirected no more; what carried ones need stays. */
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

  /** Whether namespace and rules certainly are as they were left; quick. True when none are held. */
  unchanged(record: PodRecord): boolean {
    if (this.#netns === null || this.#applied === null) return true;
    const status = statSync(record.netns, { bigint: true, throwIfNoEntry: false });
    // A path that is gone says nothing: the pod is on its way out, or its record is about to change.
    if (status !== undefined) {
      const named = { inode: String(status.ino), device: String(status.dev) };
      if (!sameNetns(this.#netns.identity, named)) return false;
    }
    const target = targetOf(this.#netns);
    return this.#deps.redirector.unchanged(target, this.#applied, this.#fingerprint);
  }

  /** Lets go of the namespace without touching it. */
  drop(): void {
    this.#netns?.release();
    this.#netns = null;
    this.#applied = null;
    this.#fingerprint = null;
    this.inherited = false;
  }

  /** Runs `work` in its turn, with the namespace kept open for as long as it takes. */
  async #hold<T>(work: (target: RedirectTarget) => Promise<T>): Promise<T> {
    const netns = present(this.#netns, 'rules are written to an open namespace').retain();
    try {
      return await this.#deps.slots.run(() => work(targetOf(netns)));
    } finally {
      netns.release();
    }
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
   * The first rules make the kernel track connections. One that is older than that would be taken for new in its
   * middle, redirected and reset; unless the kernel picks up no connection it has not seen from its start.
   * Rules that come to connections which are tracked already may take one of their directions to another zone, where it is not
   * known: the other one then outgrows the window the kernel last saw, and would lose its mark; unless windows do not matter.
   * Returns what cannot be set yet.
   */
  #leaveEstablishedAlone(): readonly Unset[] {
    const netns = present(this.#netns, 'the namespace is about to be written to');
    return ESTABLISHED.flatMap(([setting, value]) => {
      try {
        writeSysctl(netns.fd, setting, value, this.#deps.sysctlDir);
        return [];
      } catch (error) {
        // Absent until conntrack is loaded, which is then no earlier than with the first rules on this machine.
        return [{ setting, value, reason: errorText(error) }];
      }
    });
  }

  /** Once more, when the rules have loaded conntrack. */
  #leaveEstablishedAloneNow({ setting, value, reason }: Unset): void {
    const { log, sysctlDir } = this.#deps;
    const netns = present(this.#netns, 'the namespace was just written to');
    const facts = { uid: this.#uid, setting };
    try {
      writeSysctl(netns.fd, setting, value, sysctlDir);
      // Only what was sent since the rules came may have been taken for new.
      log.info({ ...facts, reason }, 'pod.established-late');
    } catch (error) {
      log.warn({ ...facts, reason: errorText(error) }, 'pod.established-at-risk');
    }
  }

  /** Connections queued on a listener that closes move to another one of its group. */
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

function targetOf(netns: NetnsHandle): RedirectTarget {
  return { netnsFd: netns.fd, inode: netns.identity.inode };
}

function openRecord(record: PodRecord): NetnsHandle {
  try {
    return NetnsHandle.open(record.netns);
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === null) throw error;
    throw new MeshError(
      'NETNS_UNAVAILABLE',
      `network namespace ${record.netns} of pod ${record.uid} cannot be opened: ${errno}`,
      { cause: error, detail: { path: record.netns } },
    );
  }
}
