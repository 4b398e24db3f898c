import type { StoredRow } from '../../lib/bus/contract.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { HELD_PERCENT, HELD_WORKLOADS_MIN } from './limits.ts';
import type { ReplicaTable } from './replica-table.ts';

/** When removals are held. */
export interface HoldRule {
  /** How long the control plane must stand by the removals, in milliseconds; 0 holds nothing. */
  readonly holdMs: number;
  readonly log: Pick<Logger, 'info' | 'warn'>;
}

/** The circumstances of removals. */
export interface JudgedAt {
  /** The removals are the first of a stream. */
  readonly initial: boolean;
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
  /** Rows that another ingester held. */
  readonly before?: ReadonlyMap<string, StoredRow>;
}

/**
 * Removals of addresses that are too many to believe at once (docs/decisions/held-removals.md). Their rows name each address and
 * the time of its first removal, so a restart or another ingester goes on with them. No I/O.
 */
export class HeldRemovals {
  readonly #rows: ReplicaTable;
  readonly #rule: HoldRule;

  constructor(rows: ReplicaTable, rule: HoldRule) {
    this.#rows = rows;
    this.#rule = rule;
  }

  /** Number of addresses that are held. */
  get size(): number {
    return this.#rows.size;
  }

  /** When the first of them is due, in milliseconds since the epoch; null when none is held. */
  get dueAtMs(): number | null {
    let first: number | null = null;
    for (const [, row] of this.#rows.entries()) {
      const since = sinceOf(row);
      if (first === null || since < first) first = since;
    }
    return first === null ? null : first + this.#rule.holdMs;
  }

  /**
   * Judges removals that the control plane sent together, and returns those to apply at once. `initial` removals are the first
   * of a stream: a held address that they do not repeat is there again.
   */
  judge(
    removed: readonly string[],
    addresses: ReplicaTable,
    { initial, nowMs, before }: JudgedAt,
  ): readonly string[] {
    if (initial) this.#withdraw(new Set(removed));
    const fresh = initial ? removed : removed.filter((name) => this.#rows.get(name) === undefined);
    const workloads = fresh.filter((name) => addresses.get(name) !== undefined && isWorkload(name));
    if (!this.#tooMany(workloads.length, addresses)) {
      for (const name of fresh) this.#rows.delete(name);
      return fresh;
    }
    const since = new Date(nowMs).toISOString();
    for (const name of fresh) {
      const held = this.#rows.get(name) ?? before?.get(name);
      this.#rows.set(name, held ?? { value: Buffer.from(since), tag: '' });
    }
    this.#rule.log.warn(
      { workloads: workloads.length, held: this.size, holdMs: this.#rule.holdMs },
      'removals.held',
    );
    return [];
  }

  /** The control plane sent the address again. */
  sent(name: string): void {
    this.#rows.delete(name);
  }

  /** Takes the names that are due, and those that an operator accepted: all that were held by `acceptedUpToMs`. */
  take(nowMs: number, acceptedUpToMs = 0): readonly string[] {
    const upToMs = Math.max(acceptedUpToMs, nowMs - this.#rule.holdMs);
    const names = [...this.#rows.entries()]
      .filter(([, row]) => sinceOf(row) <= upToMs)
      .map(([name]) => name);
    for (const name of names) this.#rows.delete(name);
    const accepted = acceptedUpToMs > 0;
    if (names.length > 0) this.#rule.log.warn({ held: names.length, accepted }, 'removals.applied');
    return names;
  }

  /** Takes over the times at which another ingester began to hold. */
  continueFrom(stored: ReadonlyMap<string, StoredRow>): void {
    for (const [name] of this.#rows.entries()) {
      const row = stored.get(name);
      if (row !== undefined) this.#rows.set(name, row);
    }
  }

  /** Returns the held names that the ingester before has removed, and holds them no longer. */
  settledIn(stored: ReadonlyMap<string, StoredRow>): readonly string[] {
    const names = [...this.#rows.entries()].map(([name]) => name);
    const settled = names.filter((name) => !stored.has(name));
    for (const name of settled) this.#rows.delete(name);
    return settled;
  }

  #withdraw(repeated: ReadonlySet<string>): void {
    const before = this.size;
    for (const [name] of this.#rows.entries()) {
      if (!repeated.has(name)) this.#rows.delete(name);
    }
    if (this.size < before) this.#rule.log.info({ held: before - this.size }, 'removals.withdrawn');
  }

  #tooMany(workloads: number, addresses: ReplicaTable): boolean {
    if (this.#rule.holdMs === 0 || workloads < HELD_WORKLOADS_MIN) return false;
    let all = 0;
    for (const [name] of addresses.entries()) if (isWorkload(name)) all += 1;
    return workloads * 100 > all * HELD_PERCENT;
  }
}

/** True for the name of a workload: that of a service is `<namespace>/<host name>` (docs/spec/control.md §3.4). */
function isWorkload(name: string): boolean {
  const slash = name.indexOf('/');
  return slash === -1 || name.includes('/', slash + 1);
}

function sinceOf({ value }: StoredRow): number {
  const since = Date.parse(Buffer.from(value).toString());
  // A row that cannot be read is due at once: it must not hold an address for ever.
  return Number.isNaN(since) ? 0 : since;
}
