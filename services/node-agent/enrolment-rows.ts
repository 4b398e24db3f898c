/** Keeps the node's `enrolments` table equal to the agent's enrolments, whenever Redis is there. */
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

/** A wanted row. `inherited`: the redirection is older than this process, so a stored `enabled` is still true, and a lost row was one. */
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

/** Rows by pod; null = a row that cannot be parsed. */
type Stored = Map<string, Enrolment | null>;

/** A value of {@link Stored}; undefined = no row. */
type Row = Enrolment | null | undefined;

/**
 * Level-triggered: callers set the wanted rows in any order; a loop writes them, and writes them again after Redis was away or
 * lost its data. It writes nothing before {@link EnrolmentRows.begin}, so that a restart drops no row.
 */
export class EnrolmentRows {
  readonly #deps: EnrolmentRowsDeps;
  readonly #wanted = new Map<string, WantedRow>();
  #unreadable: ReadonlySet<string> = new Set();
  /** The content of Redis as far as known; null = it must be read first. */
  #stored: Stored | null = null;
  readonly #stop = new AbortController();
  readonly #releases: readonly (() => void)[];
  #wake = Promise.withResolvers<void>();
  /** Counts how often the content of Redis became unknown; a read that began before is then invalid. */
  #doubts = 0;
  #begun = false;
  #writing = false;
  /** Pods whose row may differ from the stored one; empty while the stored rows are unknown, because all are compared then. */
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

  /** True when Redis holds exactly the wanted rows. */
  get idle(): boolean {
    return this.#begun && !this.#due && !this.#writing;
  }

  /** Number of wanted rows. */
  get size(): number {
    return this.#wanted.size;
  }

  /** Starts the removal of rows that are not wanted; call it when all pods were looked at once. */
  begin(): void {
    this.#begun = true;
    this.#poke();
  }

  /** Keeps the rows of these pods as they are. */
  keep(unreadable: ReadonlySet<string>): void {
    // A pod that becomes readable and is not wanted loses its row.
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

  /** Stops writing; the rows in Redis stay. */
  async close(): Promise<void> {
    this.#stop.abort(new Error('closed'));
    for (const release of this.#releases) release();
    this.#wake.resolve();
    await Promise.allSettled([this.finished]);
  }

  /** Whether the content of Redis is unknown, or may differ from the wanted rows. */
  get #due(): boolean {
    return this.#stored === null || this.#touched.size > 0;
  }

  #poke(): void {
    this.#wake.resolve();
  }

  #touch(uid: string): void {
    if (this.#stored !== null) this.#touched.add(uid);
  }

  /** Marks the content of Redis as unknown. */
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
      // Before the work, so that a wake-up during it is not lost.
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
    const read = this.#stored === null ? await this.#read() : null;
    // The mark has woken the loop.
    if (doubts !== this.#doubts) return;
    const stored = this.#stored ?? read?.rows ?? new Map();
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
    // In one step: readers would take an empty table for that of a node without enrolled pods.
    if (read?.absent === true) await writer.replaceAll([...changed].flatMap(entryOf));
    else if (changed.size > 0) await writer.apply([...changed].map(changeOf));
    this.#writing = false;
    for (const [uid, row] of changed) {
      if (row) stored.set(uid, row);
      else stored.delete(uid);
    }
  }

  /** Returns the wanted row of a pod; the stored one itself when that is right. */
  #next(uid: string, stored: Stored, now: string): Row {
    const wanted = this.#wanted.get(uid);
    if (wanted !== undefined) return merged(wanted, stored.get(uid), now);
    return this.#unreadable.has(uid) ? stored.get(uid) : undefined;
  }

  /** Reads the rows in Redis. An absent table is to be made even without a row, so that readers know that it is complete. */
  async #read(): Promise<{ readonly rows: Stored; readonly absent: boolean }> {
    const { writer } = this.#deps;
    const rows = await writer.readAll();
    const absent = rows.size === 0 && (await writer.standing()) === 'absent';
    const decoded = new Map([...rows].map(([uid, value]) => [uid, decode(value)]));
    for (const [uid, row] of decoded) {
      if (row === null) this.#deps.log.warn({ uid }, 'enrolments.row-malformed');
    }
    return { rows: decoded, absent };
  }
}

/** Returns the row to write, or the stored one itself when nothing changes. */
function merged(wanted: WantedRow, stored: Enrolment | null | undefined, now: string): Enrolment {
  const { enrolment, inherited } = wanted;
  if (!stored) {
    // Redis has lost the row of a pod that is redirected: peers must not talk to it in plaintext until its proxy is back.
    return { ...enrolment, ...(inherited ? { state: 'enabled' } : {}), since: now };
  }
  const keepsState = inherited && stored.state === 'enabled' && stored.netns === enrolment.netns;
  const row = { ...enrolment, ...(keepsState ? { state: stored.state } : {}) };
  const next = { ...row, since: row.state === stored.state ? stored.since : now };
  return sameRow(next, stored) ? stored : next;
}

function entryOf([key, row]: readonly [string, Row]): (readonly [string, Uint8Array])[] {
  return row ? [[key, encode(row)]] : [];
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

/** Parses a row; null for a malformed one, which is then written anew. */
function decode(value: Uint8Array): Enrolment | null {
  try {
    return enrolmentSchema.parse(JSON.parse(Buffer.from(value).toString('utf8')));
  } catch {
    return null;
  }
}
