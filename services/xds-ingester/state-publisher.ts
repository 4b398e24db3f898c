import type { Bus, Lease, StoredRow, TableStanding, TableWriter } from '../../lib/bus/contract.ts';
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

/** What the publisher needs to know of the source of the state. */
export interface StateSource {
  /** True while the state in memory is known to be the current one: a live stream answered for every type. */
  readonly live: boolean;
  /** True once the state in memory was complete. */
  readonly complete: boolean;
  /** Called once, when the first lease is held and what Redis stores is loaded: the source may start. */
  start(): void;
  /** The state in memory was replaced by what another ingester wrote: follow from there. */
  reopen(): void;
}

/** What the publisher needs. */
export interface PublisherDeps {
  readonly bus: Bus;
  readonly lease: Lease;
  readonly state: MeshState;
  readonly source: StateSource;
  readonly clock: Clock;
  readonly log: Logger;
}

/**
 * Keeps Redis equal to the state in memory while the lease is held. Every doubt about what Redis has (a new connection, a
 * refused step, a new term) is settled by comparing first: lost data is written again under a new epoch, what another
 * ingester wrote is taken over.
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
  #started = false;
  #published = false;

  /** `onPublished` is called when Redis first holds a complete state. */
  constructor(deps: PublisherDeps, onPublished: () => void) {
    this.#deps = deps;
    this.#onPublished = onPublished;
    const writer = (table: OwnedTable): TableWriter => deps.bus.writer(table, 'mesh', deps.lease);
    this.#writers = {
      rejections: writer('rejections'),
      authorizations: writer('authorizations'),
      addresses: writer('addresses'),
    };
    const doubt = (): void => {
      this.#settled = false;
      this.poke();
    };
    this.#releases = [deps.lease.onChange(doubt), deps.bus.onConnection(doubt)];
    this.finished = this.#run();
  }

  /** True when Redis holds all there is. */
  get idle(): boolean {
    return this.#settled && this.#published && !this.#deps.state.dirty;
  }

  /** Says that there may be something to do. */
  poke(): void {
    this.#wake.resolve();
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('publisher closed'));
    for (const release of this.#releases) release();
    this.poke();
    await Promise.allSettled([this.finished]);
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
        backoff.reset();
        await this.#wake.promise;
      } catch (error) {
        if (!(error instanceof MeshError)) throw error;
        this.#settled = false;
        log.warn({ error: errorText(error), code: error.code }, 'ingest.write-failed');
        await pause(clock, backoff.next(), signal);
      }
    }
  }

  async #work(): Promise<void> {
    const { source } = this.#deps;
    if (!this.#settled) await this.#settle();
    if (!this.#started) {
      this.#started = true;
      source.start();
    }
    // Before the first complete state there is either the last known good one in Redis, which changes bring up to date, or
    // nothing, and then readers must not take the beginning of a mesh for all of it.
    if (!this.#published) {
      if (!source.complete) return;
      await this.#replaceAll();
      this.#published = true;
    }
    await this.#flush();
  }

  /** Finds out what Redis has, and makes a plan of it: a loaded state, dirty rows, or tables to write whole. */
  async #settle(): Promise<void> {
    const { log, source } = this.#deps;
    const standings = await this.#standings();
    if (!this.#started) {
      await this.#adopt();
    } else if (standings.includes('absent')) {
      // Gone, or left half made by an ingester that died: what is in memory is the last known good state.
      log.warn({ standings }, 'ingest.redis-lost-state');
      if (this.#published) await this.#replaceAll();
    } else if (standings.includes('foreign')) {
      if (source.live) await this.#compare();
      else await this.#adopt();
    } else if (standings.includes('behind')) {
      log.warn({ standings }, 'ingest.redis-lost-state');
      await this.#replaceAll();
    }
    this.#settled = true;
  }

  async #standings(): Promise<readonly TableStanding[]> {
    const standings: TableStanding[] = [];
    for (const table of OWNED_TABLES) standings.push(await this.#writers[table].standing());
    return standings;
  }

  /** Takes what Redis holds as the state to go on from. */
  async #adopt(): Promise<void> {
    const { log, source, state } = this.#deps;
    const absent = (await this.#standings()).includes('absent');
    const stored: Record<OwnedTable, Map<string, StoredRow>> = {
      rejections: await this.#writers.rejections.readRows(),
      authorizations: await this.#writers.authorizations.readRows(),
      addresses: await this.#writers.addresses.readRows(),
    };
    const rows = OWNED_TABLES.map((table) => `${table} ${stored[table].size}`).join(', ');
    log.info({ rows, absent }, 'ingest.adopted');
    state.load(stored);
    this.#published = !absent;
    if (this.#started) source.reopen();
  }

  /** Finds the rows another ingester left different from the current state. */
  async #compare(): Promise<void> {
    for (const table of OWNED_TABLES) {
      this.#deps.state.tables[table].diff(await this.#writers[table].readRows());
    }
  }

  async #replaceAll(): Promise<void> {
    const { log, state } = this.#deps;
    for (const table of OWNED_TABLES) {
      await this.#writers[table].replaceAll(state.tables[table].takeAll());
      log.info({ table, rows: state.tables[table].size }, 'ingest.table-replaced');
    }
  }

  async #flush(): Promise<void> {
    const { source, state } = this.#deps;
    for (;;) {
      const table = OWNED_TABLES.find((name) => state.tables[name].dirty > 0);
      if (table === undefined) break;
      const changes = state.tables[table].take(BATCH_CHANGES_MAX);
      try {
        await this.#writers[table].apply(changes);
      } catch (error) {
        state.tables[table].restore(changes);
        throw error;
      }
    }
    if (source.complete) this.#onPublished();
  }
}
