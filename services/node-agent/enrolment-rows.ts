/** Keeps the node's `enrolments` table equal to what the agent has enrolled, whenever Redis is there. */
import { Backoff } from '../../lib/clock/backoff.ts';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import type { RowChange } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import type { TableWriter } from '../../lib/bus/table-writer.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { enrolmentSchema } from '../../lib/state/enrolment.ts';
import type { Enrolment } from '../../lib/state/enrolment.ts';
import { ROWS_RETRY } from './limits.ts';

/** A row wanted. `inherited`: the redirection stood before this process did, so a stored `enabled` is still true. */
export interface WantedRow {
  readonly enrolment: Omit<Enrolment, 'since'>;
  readonly inherited: boolean;
}

/** Ports of {@link EnrolmentRows}. */
export interface EnrolmentRowsDeps {
  readonly bus: Pick<Bus, 'onConnection'>;
  readonly lease: Lease;
  readonly writer: Pick<TableWriter, 'apply' | 'readAll' | 'replaceAll' | 'standing'>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Rows by pod; null = one that cannot be read. */
type Stored = Map<string, Enrolment | null>;

/** As {@link Stored} has it; undefined = none. */
type Row = Enrolment | null | undefined;

/**
 * Level-triggered: callers say what is to be, in any order; the loop makes it so, and again after Redis was away
 * or lost its data. Nothing is written before {@link EnrolmentRows.begin}, so that a restart drops no row.
 */
export class EnrolmentRows {
  readonly #deps: EnrolmentRowsDeps;
  readonly #wanted = new Map<string, WantedRow>();
  #unreadable: ReadonlySet<string> = new Set();
  /** What Redis holds as far as known; null = must be read first. */
  #stored: Stored | null = null;
  readonly #stop = new AbortController();
  readonly #releases: readonly (() => void)[];
  #wake = Promise.withResolvers<void>();
  /** Counts the times that what Redis holds became unknown: a read in hand is of no use then. */
  #doubts = 0;
  #begun = false;
  #writing = false;
  /** Pods whose row may differ from what is stored; none while that is unknown, as all are looked at then. */
  readonly #touched = new Set<string>();
  /** Settles when closed; rejects for a defect. */
  readonly finished: Promise<void>;

  constructor(deps: EnrolmentRowsDeps) {
    this.#deps = deps;
    const doubt = (): void => {
      this.#forget();
      this.#poke();
    };
    this.#releases = [deps.lease.onChange(doubt), deps.bus.onConnection(doubt)];
    this.finished = this.#run();
  }

  /** True when Redis holds exactly what is wanted. */
  get idle(): boolean {
    return this.#begun && !this.#due && !this.#writing;
  }

  /** How many rows are wanted. */
  get size(): number {
    return this.#wanted.size;
  }

  /** The first look at all pods is done: from now on rows of others are removed. */
  begin(): void {
    this.#begun = true;
    this.#poke();
  }

  /** Rows of these pods stay as they are. */
  keep(unreadable: ReadonlySet<string>): void {
    // Who becomes readable without being wanted is to go.
    for (const uid of this.#unreadable) this.#touch(uid);
    this.#unreadable = unreadable;
    this.#poke();
  }

  set(uid: string, row: WantedRow): void {
    this.#wanted.set(uid, row);
    this.#touch(uid);
    this.#poke();
  }

  delete(uid: string): void {
    if (!this.#wanted.delete(uid)) return;
    this.#touch(uid);
    this.#poke();
  }

  /** Stops writing; what is in Redis stays. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('closed'));
    for (const release of this.#releases) release();
    this.#wake.resolve();
    await Promise.allSettled([this.finished]);
  }

  /** What Redis holds is unknown, or may not be what is wanted. */
  get #due(): boolean {
    return this.#stored === null || this.#touched.size > 0;
  }

  #poke(): void {
    this.#wake.resolve();
  }

  #touch(uid: string): void {
    if (this.#stored !== null) this.#touched.add(uid);
  }

  /** What Redis holds has to be read again. */
  #forget(): void {
    this.#doubts += 1;
    this.#stored = null;
    this.#touched.clear();
    this.#writing = false;
  }

  async #run(): Promise<void> {
    const { clock, lease, log } = this.#deps;
    const { signal } = this.#stop;
    const backoff = new Backoff(ROWS_RETRY);
    while (!signal.aborted) {
      // Before the work, so that a poke during it is not lost.
      this.#wake = Promise.withResolvers<void>();
      try {
        if (lease.held && this.#begun && this.#due) await this.#write();
        backoff.reset();
        await this.#wake.promise;
      } catch (error) {
        if (!(error instanceof MeshError)) throw error;
        this.#forget();
        log.warn({ code: error.code, reason: errorText(error) }, 'enrolments.write-failed');
        await pause(clock, backoff.next(), signal);
      }
    }
  }

  async #write(): Promise<void> {
    const { writer, clock } = this.#deps;
    const doubts = this.#doubts;
    const stored = this.#stored ?? (await this.#read());
    // The doubt has woken the loop.
    if (doubts !== this.#doubts) return;
    if (this.#stored === null) {
      this.#stored = stored;
      for (const uid of [...this.#wanted.keys(), ...stored.keys()]) this.#touched.add(uid);
    }
    const touched = [...this.#touched];
    this.#touched.clear();
    const now = new Date(clock.now()).toISOString();
    const changed = new Map<string, Row>();
    for (const uid of touched) {
      const next = this.#next(uid, stored, now);
      if (next !== stored.get(uid)) changed.set(uid, next);
    }
    this.#writing = true;
    if (changed.size > 0) await writer.apply([...changed].map(changeOf));
    this.#writing = false;
    for (const [uid, row] of changed) {
      if (row) stored.set(uid, row);
      else stored.delete(uid);
    }
  }

  /** The row that a pod is to have; the stored one itself when that is right. */
  #next(uid: string, stored: Stored, now: string): Row {
    const wanted = this.#wanted.get(uid);
    if (wanted !== undefined) return merged(wanted, stored.get(uid), now);
    return this.#unreadable.has(uid) ? stored.get(uid) : undefined;
  }

  /** What Redis holds; makes the table when there is none, so that readers know that it is complete. */
  async #read(): Promise<Stored> {
    const { writer } = this.#deps;
    const rows = await writer.readAll();
    if (rows.size === 0 && (await writer.standing()) === 'absent') await writer.replaceAll([]);
    const decoded = new Map([...rows].map(([uid, value]) => [uid, decode(value)]));
    for (const [uid, row] of decoded) {
      if (row === null) this.#deps.log.warn({ uid }, 'enrolments.row-malformed');
    }
    return decoded;
  }
}

/** The row to write, or the stored one itself when nothing changes. */
function merged(wanted: WantedRow, stored: Enrolment | null | undefined, now: string): Enrolment {
  const { enrolment, inherited } = wanted;
  if (!stored) return { ...enrolment, since: now };
  const keepsState = inherited && stored.state === 'enabled' && stored.netns === enrolment.netns;
  const row = { ...enrolment, ...(keepsState ? { state: stored.state } : {}) };
  const next = { ...row, since: row.state === stored.state ? stored.since : now };
  return sameRow(next, stored) ? stored : next;
}

function changeOf([key, row]: readonly [string, Row]): RowChange {
  return { key, value: row ? encode(row) : null };
}

function sameRow(a: Enrolment, b: Enrolment): boolean {
  return Buffer.compare(encode(a), encode(b)) === 0;
}

function encode(row: Enrolment): Uint8Array {
  // Rebuilt in one order of fields, so that equal rows have equal bytes.
  const { podUid, namespace, name, serviceAccount, netns, addresses, state, since } = row;
  const ordered = { podUid, namespace, name, serviceAccount, netns, addresses, state, since };
  return Buffer.from(JSON.stringify(ordered));
}

/** Null for a row that cannot be read: it is written anew. */
function decode(value: Uint8Array): Enrolment | null {
  try {
    return enrolmentSchema.parse(JSON.parse(Buffer.from(value).toString('utf8')));
  } catch {
    return null;
  }
}
