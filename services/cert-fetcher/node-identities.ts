import type { Clock } from '../../lib/clock/clock.ts';
import type { TableChange, TableEntry, TableHandler } from '../../lib/bus/contract.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { formatSpiffe } from '../../lib/net/spiffe.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';

/**
 * The identities of the workloads of one node, from the mesh's `addresses` table. Nothing else of the table is
 * kept. Through a new copy the old one stays in force until the new one is complete.
 */
export class NodeIdentities implements TableHandler {
  readonly #node: string;
  readonly #log: Pick<Logger, 'warn'>;
  /** Row key → identity. */
  #rows = new Map<string, string>();
  #counts = new Map<string, number>();
  #next: Map<string, string> | null = null;
  #synced = false;
  readonly #onSynced: () => void;
  /** Jobs that wait for an identity to appear. */
  readonly #waiting = new Set<() => void>();

  constructor(node: string, log: Pick<Logger, 'warn'>, onSynced: () => void) {
    this.#node = node;
    this.#log = log;
    this.#onSynced = onSynced;
  }

  /** False until the table was read once; stays true when Redis goes away. */
  get synced(): boolean {
    return this.#synced;
  }

  get size(): number {
    return this.#counts.size;
  }

  /** True when a workload of this node has the identity. */
  has(identity: string): boolean {
    return this.#counts.has(identity);
  }

  /**
   * True as soon as the table was read and a workload of this node has the identity, false when `patienceMs`
   * passes first. A request may be quicker than the row that justifies it, as both cross Redis.
   */
  async appears(identity: string, patienceMs: number, clock: Clock): Promise<boolean> {
    if (this.#synced && this.has(identity)) return true;
    const { promise, resolve } = Promise.withResolvers<void>();
    const look = (): void => {
      if (this.#synced && this.has(identity)) resolve();
    };
    this.#waiting.add(look);
    const timer = clock.after(patienceMs, resolve);
    await promise;
    timer.cancel();
    this.#waiting.delete(look);
    return this.#synced && this.has(identity);
  }

  onReset(): void {
    this.#next = new Map();
  }

  onEntries(entries: readonly TableEntry[]): void {
    for (const { key, value } of entries) {
      const identity = this.#identityOf(key, value);
      if (identity !== null) this.#next?.set(key, identity);
    }
  }

  onSynced(): void {
    if (this.#next !== null) {
      this.#rows = this.#next;
      this.#next = null;
      this.#counts = new Map();
      for (const identity of this.#rows.values()) this.#count(identity, 1);
    }
    this.#synced = true;
    this.#onSynced();
    this.#wake();
  }

  onChanges(changes: readonly TableChange[]): void {
    for (const { key, value } of changes) {
      const before = this.#rows.get(key);
      if (before !== undefined) {
        this.#rows.delete(key);
        this.#count(before, -1);
      }
      const identity = value === null ? null : this.#identityOf(key, value);
      if (identity === null) continue;
      this.#rows.set(key, identity);
      this.#count(identity, 1);
    }
    this.#wake();
  }

  #wake(): void {
    for (const look of this.#waiting) look();
  }

  #count(identity: string, step: number): void {
    const count = (this.#counts.get(identity) ?? 0) + step;
    if (count === 0) this.#counts.delete(identity);
    else this.#counts.set(identity, count);
  }

  #identityOf(key: string, value: Uint8Array): string | null {
    try {
      const resource = decodeAddress(value);
      if (resource.kind !== 'workload' || resource.workload.node !== this.#node) return null;
      return formatSpiffe(resource.workload);
    } catch (error) {
      // The ingester refuses what cannot be decoded, so this is a row of a newer version, or damage.
      this.#log.warn({ key, problem: errorText(error) }, 'an address row is ignored');
      return null;
    }
  }
}
