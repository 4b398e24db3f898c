import type { StoredRow, TableStanding } from '../../lib/bus/contract.ts';
import type { Bus } from '../../lib/bus/redis-bus.ts';
import type { Lease } from '../../lib/bus/lease.ts';
import type { Mark, TableWriter } from '../../lib/bus/table-writer.ts';
import { Backoff } from '../../lib/clock/backoff.ts';
import { pause } from '../../lib/clock/clock.ts';
import type { Clock } from '../../lib/clock/clock.ts';
import { MeshError, errorText } from '../../lib/errors/mesh-error.ts';
import type { Logger } from '../../lib/log/logger.ts';
import { OWNED_TABLES } from './mesh-state.ts';
import type { MeshState, OwnedTable } from './mesh-state.ts';

/** Changes written at a time. */
const BATCH_CHANGES_MAX = 1_000;

const RETRY = { baseMs: 100, maxMs: 5_000 };

/** The source of the state, as the publisher sees it. */
export interface StateSource {
  /** True while the state in memory is known to be the current one: a live stream answered for every type. */
  readonly live: boolean;
  /** True once the state in memory was complete. */
  readonly complete: boolean;
  /** True when only parts of the mesh are followed: Redis then knows more of what is needed than a standby. */
  readonly partial: boolean;
  /** Called once: the source may start. As a leader this process has loaded what Redis stores; as a standby it holds nothing. */
  start(): void;
  /** Called when the rows of another ingester replaced the state in memory: follow from there. */
  reopen(): void;
}

/** Dependencies of the publisher. */
export interface PublisherDeps {
  readonly bus: Bus;
  readonly lease: Lease;
  readonly state: MeshState;
  readonly source: StateSource;
  /** Called when the table `addresses` is as in memory, at `mark`; returns true when that made rows to write. */
  readonly stamp?: (mark: Mark) => boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Keeps Redis equal to the state in memory while the lease is held. A table of Redis that is as its writer left it differs from
 * memory only in dirty rows, because a row stays dirty until Redis has confirmed it. Every doubt (a new connection, a failed step,
 * a new term) is settled table by table before anything else is written: lost data is written again under a new epoch, and rows
 * that another ingester may have written are compared or taken over.
 */
export class StatePublisher {
  readonly #deps: PublisherDeps;
  readonly #writers: Readonly<Record<OwnedTable, TableWriter>>;
  readonly #stop = new AbortController();
  readonly #releases: (() => void)[];
  readonly #onPublished: () => void;
  /** Settles when closed; rejects for a defect. */
  readonly finished: Promise<void>;
  #wake = Promise.withResolvers<void>();
  #settled = false;
  /** Counts doubts: a doubt that comes while another is settled leaves everything unsettled. */
  #doubts = 0;
  /** The lease was lost since the last settling: another ingester may have written. */
  #newTerm = false;
  #started = false;
  #published = false;
  #standsBy = false;
  /** The leader is late to renew its lease. */
  #overdue = false;
  /** Rows of Redis that were read before this process leads; null when there are none. */
  #ahead: ReadonlyMap<OwnedTable, Map<string, StoredRow>> | null = null;

  /** `onPublished` is called when Redis first holds a complete state. */
  constructor(deps: PublisherDeps, onPublished: () => void) {
    this.#deps = deps;
    this.#onPublished = onPublished;
    const writer = (table: OwnedTable): TableWriter => deps.bus.writer(table, 'mesh', deps.lease);
    this.#writers = {
      rejections: writer('rejections'),
      authorizations: writer('authorizations'),
      removals: writer('removals'),
      addresses: writer('addresses'),
      names: writer('names'),
    };
    this.#releases = [
      deps.lease.onChange((held) => {
        if (!held) this.#newTerm = true;
        this.#doubt();
      }),
      deps.lease.onOverdue((overdue) => {
        this.#overdue = overdue;
        this.poke();
      }),
      deps.bus.onConnection(() => {
        // Another or an older Redis may have answered.
        this.#ahead = null;
        this.#doubt();
      }),
    ];
    this.finished = this.#run();
  }

  /** True when Redis holds all there is. */
  get idle(): boolean {
    return this.#settled && this.#published && !this.#deps.state.dirty;
  }

  /** Wakes the publisher: there may be something to do. */
  poke(): void {
    this.#wake.resolve();
  }

  /**
   * Another process leads: follows the source from now on without writing, so that a takeover finds the current state in memory
   * and has only to compare it with Redis. A source of parts is not followed: this process would not know which.
   */
  standBy(): void {
    this.#standsBy = true;
    this.poke();
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('publisher closed'));
    for (const release of this.#releases) release();
    this.poke();
    await Promise.allSettled([this.finished]);
  }

  #doubt(): void {
    this.#settled = false;
    this.#doubts += 1;
    this.poke();
  }

  async #run(): Promise<void> {
    const { clock, lease, log } = this.#deps;
    const { signal } = this.#stop;
    const backoff = new Backoff(RETRY);
    while (!signal.aborted) {
      // Before the work, so that a poke during it is not lost.
      this.#wake = Promise.withResolvers<void>();
      try {
        if (lease.held) await this.#work();
        else if (this.#standsBy) await this.#standAside();
        backoff.reset();
        await this.#wake.promise;
      } catch (error) {
        if (!(error instanceof MeshError)) throw error;
        this.#doubt();
        log.warn({ error: errorText(error), code: error.code }, 'ingest.write-failed');
        await pause(clock, backoff.next(), signal);
      }
    }
  }

  async #standAside(): Promise<void> {
    const { source } = this.#deps;
    if (source.partial) return;
    if (!this.#started) {
      this.#started = true;
      // Whenever this process leads, another has written before.
      this.#newTerm = true;
      source.start();
    }
    if (!this.#overdue) this.#ahead = null;
    else if (this.#ahead === null && source.live) await this.#readAhead();
  }

  /**
   * Reads what Redis stores while the leader's lease runs out, because that takes most of the time of a takeover. It holds if the
   * tables are as they were read once this process leads.
   */
  async #readAhead(): Promise<void> {
    const { log } = this.#deps;
    const ahead = new Map<OwnedTable, Map<string, StoredRow>>();
    try {
      for (const table of OWNED_TABLES) ahead.set(table, await this.#writers[table].readRows());
    } catch (error) {
      if (!(error instanceof MeshError)) throw error;
      log.debug({ error: errorText(error), code: error.code }, 'ingest.not-read-ahead');
      return;
    }
    this.#ahead = ahead;
    log.info({ rows: ahead.get('addresses')?.size }, 'ingest.read-ahead');
  }

  async #work(): Promise<void> {
    const { source } = this.#deps;
    if (!this.#settled) await this.#settle();
    // Another doubt came, and has woken the loop.
    if (!this.#settled) return;
    if (!this.#started) {
      this.#started = true;
      source.start();
    }
    // Until the first complete state, Redis holds the last known good state or nothing. Readers must not take the beginning of a
    // mesh for all of it.
    if (!this.#published) {
      if (!source.complete) return;
      for (const table of OWNED_TABLES) await this.#replace(table);
      this.#published = true;
    }
    await this.#flush();
  }

  /** Compares Redis with memory, and leaves a loaded state, dirty rows, or tables written whole. */
  async #settle(): Promise<void> {
    const { source } = this.#deps;
    const doubts = this.#doubts;
    const newTerm = this.#newTerm;
    const ahead = this.#ahead;
    this.#ahead = null;
    const standings = await this.#standings();
    const absent = standings.includes('absent');
    // Within one term only this process writes: a foreign table is its own work then, from steps without an answer.
    const foreign = newTerm && (ahead !== null || standings.includes('foreign'));
    const behind = source.partial || !source.live;
    if (!this.#started || (foreign && !absent && behind)) await this.#adopt();
    else await this.#repair(standings, newTerm, ahead);
    if (doubts !== this.#doubts) return;
    this.#newTerm = false;
    this.#settled = true;
  }

  async #standings(): Promise<readonly TableStanding[]> {
    const standings: TableStanding[] = [];
    for (const table of OWNED_TABLES) standings.push(await this.#writers[table].standing());
    return standings;
  }

  /** Loads the rows of Redis as the state to continue from. */
  async #adopt(): Promise<void> {
    const { log, source, state } = this.#deps;
    const stored: Record<OwnedTable, Map<string, StoredRow>> = {
      rejections: await this.#writers.rejections.readRows(),
      authorizations: await this.#writers.authorizations.readRows(),
      removals: await this.#writers.removals.readRows(),
      addresses: await this.#writers.addresses.readRows(),
      names: await this.#writers.names.readRows(),
    };
    const absent = (await this.#standings()).includes('absent');
    // Memory holds more than the tables that are left.
    if (absent && this.#started) {
      throw new MeshError('STATE_CONFLICT', 'a table has gone while all were read');
    }
    const rows = OWNED_TABLES.map((table) => `${table} ${stored[table].size}`).join(', ');
    log.info({ rows, absent }, 'ingest.adopted');
    state.load(stored);
    this.#published = !absent;
    if (this.#started) source.reopen();
  }

  /** Makes each table differ from memory only in its dirty rows. */
  async #repair(
    standings: readonly TableStanding[],
    newTerm: boolean,
    ahead: ReadonlyMap<OwnedTable, Map<string, StoredRow>> | null,
  ): Promise<void> {
    const { log, state } = this.#deps;
    // The process that led before has published all tables.
    if (newTerm && !standings.includes('absent')) this.#published = true;
    // The table is gone, half made by an ingester that died, or older than the last write.
    const lost = standings.some((standing) => standing === 'absent' || standing === 'behind');
    if (lost) log.warn({ standings }, 'ingest.redis-lost-state');
    for (const [index, table] of OWNED_TABLES.entries()) {
      const standing = standings[index];
      if (standing === 'absent' || standing === 'behind') {
        if (this.#published) await this.#replace(table);
      } else if (standing === 'foreign' || newTerm) {
        // After a failover an equal version proves nothing: another ingester may have written as many rows as were lost.
        const known = standing === 'intact' ? ahead?.get(table) : undefined;
        const stored = known ?? (await this.#writers[table].readRows());
        if (newTerm) state.takeOver(table, stored);
        state.tables[table].diff(stored);
      }
    }
  }

  /** Writes a table whole, under a new epoch. */
  async #replace(table: OwnedTable): Promise<void> {
    const { log, state } = this.#deps;
    const rows = state.tables[table].takeAll();
    await this.#confirm(table, this.#writers[table].replaceAll(rows));
    log.info({ table, rows: rows.length }, 'ingest.table-replaced');
  }

  async #flush(): Promise<void> {
    const { source, stamp, state } = this.#deps;
    for (;;) {
      if (!this.#settled) return;
      const table = OWNED_TABLES.find((name) => state.tables[name].dirty > 0);
      if (table === undefined) {
        const { mark } = this.#writers.addresses;
        if (mark !== null && stamp?.(mark) === true) continue;
        break;
      }
      const changes = state.tables[table].take(BATCH_CHANGES_MAX);
      await this.#confirm(table, this.#writers[table].apply(changes));
    }
    if (source.complete) this.#onPublished();
  }

  /** Rows that were taken are dirty until the write is confirmed. */
  async #confirm(table: OwnedTable, write: Promise<void>): Promise<void> {
    const rows = this.#deps.state.tables[table];
    try {
      await write;
    } catch (error) {
      rows.restore();
      throw error;
    }
    rows.written();
  }
}
