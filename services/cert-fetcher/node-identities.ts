import type { Clock } from '../../lib/clock/clock.ts';
import { TableMirror } from '../../lib/bus/table-mirror.ts';
import type { TableSink } from '../../lib/bus/table-mirror.ts';
import { errorText } from '../../lib/errors/mesh-error.ts';
import { formatSpiffe } from '../../lib/net/spiffe.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { decodeAddress } from '../../lib/xds/resources/address.ts';

/** The identities of the workloads of one node, from the mesh's `addresses` table. Nothing else of the table is kept. */
export class NodeIdentities implements TableSink {
  /** Follows the `addresses` table. */
  readonly mirror = new TableMirror(this);
  readonly #node: string;
  readonly #log: Pick<Logger, 'warn'>;
  readonly #onSynced: () => void;
  /** Row key → identity. */
  readonly #rows = new Map<string, string>();
  /** Identity → workloads of this node that have it. */
  readonly #counts = new Map<string, number>();
  /** Jobs that wait for an identity to appear. */
  readonly #waiting = new Set<() => void>();

  /** `onSynced` is called after every step of the table once the table was copied. */
  constructor(node: string, log: Pick<Logger, 'warn'>, onSynced: () => void) {
    this.#node = node;
    this.#log = log;
    this.#onSynced = onSynced;
  }

  /** False until the table was read once; stays true when Redis goes away. */
  get synced(): boolean {
    return this.mirror.synced;
  }

  get size(): number {
    return this.#counts.size;
  }

  /** True when the table was read and a workload of this node has the identity. */
  has(identity: string): boolean {
    return this.synced && this.#counts.has(identity);
  }

  /**
   * True as soon as {@link has} is true, false when `patienceMs` passes first. A request may be quicker than the row that
   * justifies it, as both cross Redis.
   */
  async appears(identity: string, patienceMs: number, clock: Clock): Promise<boolean> {
    if (this.has(identity)) return true;
    const { promise, resolve } = Promise.withResolvers<void>();
    const look = (): void => {
      if (this.has(identity)) resolve();
    };
    this.#waiting.add(look);
    const timer = clock.after(patienceMs, resolve);
    await promise;
    timer.cancel();
    this.#waiting.delete(look);
    return this.has(identity);
  }

  keys(): Iterable<string> {
    return this.#rows.keys();
  }

  apply(key: string, value: Uint8Array | null): void {
    const before = this.#rows.get(key);
    if (before !== undefined) {
      this.#rows.delete(key);
      this.#count(before, -1);
    }
    const identity = value === null ? null : this.#identityOf(key, value);
    if (identity === null) return;
    this.#rows.set(key, identity);
    this.#count(identity, 1);
  }

  applied(): void {
    if (this.synced) this.#onSynced();
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
      this.#log.warn({ key, error: errorText(error) }, 'identities.unreadable-row');
      return null;
    }
  }
}
