import { pause } from '../clock/clock.ts';
import type { Clock } from '../clock/clock.ts';
import { Backoff } from '../clock/backoff.ts';
import { errorText } from '../errors/mesh-error.ts';
import type { Logger } from '../log/logger.ts';
import { blockTimeMs } from './block-time.ts';
import type { TableEntry, TableHandler } from './contract.ts';
import { FOLLOW_SLICE_ENTRIES, RESYNC_SPREAD_MAX_MS, RESYNC_SPREAD_PER_ROW_MS } from './limits.ts';
import type { TableKeys } from './keys.ts';
import type { MalformedReport } from './malformed.ts';
import type { BusMetrics } from './metrics.ts';
import { onLink, whenReady } from './redis-client.ts';
import type { RedisClient } from './redis-client.ts';
import { LogCursor } from './log-cursor.ts';
import type { RawEntry, ResyncReason } from './log-cursor.ts';
import { decodeRow } from './rows.ts';
import { scanHash } from './scan-hash.ts';

/** Dependencies of a reader. The reader owns the client and closes it. */
export interface ReaderDeps {
  readonly table: string;
  readonly keys: TableKeys;
  readonly client: RedisClient;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: BusMetrics;
  readonly malformed: MalformedReport;
  /** Called when the reader is closed. */
  readonly onClose: () => void;
}

/** A failure of the handler. It is not Redis's fault, so it ends the reader. */
class HandlerFailure extends Error {}

const RETRY = { baseMs: 50, maxMs: 2_000 };

/**
 * Copies a table and follows its change log until it is closed, through Redis restarts, epochs and gaps. It reads the last id
 * first, then the rows, then the changes from that id on. When it cannot follow the log it copies the table again.
 */
export class TableReader {
  readonly #deps: ReaderDeps;
  readonly #handler: TableHandler;
  readonly #stop = new AbortController();
  /** Settles when the reader has ended; rejects when the handler failed. */
  readonly finished: Promise<void>;
  #cursor: LogCursor | null = null;
  #verified = false;
  #synced = false;
  /** Rows of the last copy, and changes since: at least the size of the table. */
  #rowsSeen = 0;

  constructor(deps: ReaderDeps, handler: TableHandler) {
    this.#deps = deps;
    this.#handler = handler;
    // A new connection may lead to a restarted, other or older Redis.
    const lost = (): void => {
      this.#verified = false;
    };
    onLink(deps.client, lost, lost);
    this.finished = this.#run();
  }

  /** True once a full copy was delivered; stays true when Redis goes away (last known good). */
  get synced(): boolean {
    return this.#synced;
  }

  async close(): Promise<void> {
    this.#stop.abort(new Error('reader closed'));
    this.#deps.onClose();
    this.#deps.client.disconnect();
    await Promise.allSettled([this.finished]);
  }

  async #run(): Promise<void> {
    const { client, clock, log, table } = this.#deps;
    const { signal } = this.#stop;
    const backoff = new Backoff(RETRY);
    let reason: ResyncReason | null = null;
    while (!signal.aborted) {
      try {
        await whenReady(client, signal);
        if (this.#cursor === null) {
          if (reason !== null) await this.#spread(reason);
          await this.#copy();
          reason = null;
        } else {
          reason = await this.#follow(this.#cursor);
          this.#cursor = null;
        }
        backoff.reset();
      } catch (error) {
        if (signal.aborted) return;
        this.#verified = false;
        if (error instanceof HandlerFailure) throw error.cause;
        log.warn({ table, error: errorText(error) }, 'bus.reader-interrupted');
        await pause(clock, backoff.next(), signal);
      }
    }
  }

  /** Waits for a random time, so that the readers of a large table do not all copy it at once. */
  async #spread(reason: ResyncReason): Promise<void> {
    const { clock, log, metrics, table } = this.#deps;
    const spreadMs = Math.min(this.#rowsSeen * RESYNC_SPREAD_PER_ROW_MS, RESYNC_SPREAD_MAX_MS);
    const delayMs = Math.random() * spreadMs;
    this.#rowsSeen = 0;
    metrics.resyncs.inc({ table, reason });
    log.info({ table, reason, delayMs: Math.round(delayMs) }, 'bus.resync');
    if (delayMs > 0) await clock.sleep(delayMs, this.#stop.signal);
  }

  /** One full copy; leaves no cursor when there is no table yet or it was replaced meanwhile. */
  async #copy(): Promise<void> {
    const { client, keys } = this.#deps;
    const start = await this.#position();
    if (!start.complete) {
      await readLog(client, keys.log, start.id);
      return;
    }
    const cursor = new LogCursor(start);
    await this.#handle(() => this.#handler.onReset(start.epoch, start.version));
    await this.#copyRows(cursor);
    const end = await this.#position();
    // Rows of two epochs may be mixed: this is no copy.
    if (end.epoch !== start.epoch || !end.complete) return;
    this.#verified = true;
    this.#cursor = cursor;
    this.#synced = true;
    this.#deps.log.debug({ table: this.#deps.table, epoch: start.epoch }, 'bus.table-copied');
    await this.#handle(() => this.#handler.onSynced());
  }

  async #copyRows(cursor: LogCursor): Promise<void> {
    const { client, keys, malformed } = this.#deps;
    for await (const slice of scanHash(client, keys.data)) {
      const entries: TableEntry[] = [];
      for (const [key, row] of slice) {
        const entry = decodeRow(key, row);
        if (entry === null) {
          malformed.report(key.toString(), 'row is not a version and a value');
        } else {
          cursor.sawRow(entry);
          entries.push(entry);
        }
      }
      this.#rowsSeen += entries.length;
      if (entries.length > 0) await this.#handle(() => this.#handler.onEntries(entries));
    }
  }

  /** Delivers changes until the log cannot be followed any more; resolves with the reason. */
  async #follow(cursor: LogCursor): Promise<ResyncReason> {
    const { client, keys } = this.#deps;
    for (;;) {
      if (!this.#verified) {
        const lost = await this.#verify(cursor);
        if (lost !== null) return lost;
      }
      const entries = await readLog(client, keys.log, cursor.id);
      // Silence proves nothing: the log may have been deleted.
      if (entries.length === 0) this.#verified = false;
      const before = cursor.version;
      const { changes, malformed, end } = cursor.take(entries);
      const { version } = cursor;
      this.#rowsSeen += changes.length;
      for (const { id, reason } of malformed)
        this.#deps.malformed.report(`log entry ${id}`, reason);
      if (version > before) await this.#handle(() => this.#handler.onChanges(changes, version));
      if (end !== null) return end;
    }
  }

  /** The reason why the position can no longer be trusted, or null. */
  async #verify(cursor: LogCursor): Promise<ResyncReason | null> {
    const { client, keys } = this.#deps;
    const now = await this.#position();
    if (!now.complete || now.epoch !== cursor.epoch) return 'epoch';
    if (now.version < cursor.version) return 'rollback';
    const isLast = cursor.id === now.id || cursor.id === '0-0';
    if (!isLast && (await client.xrange(keys.log, cursor.id, cursor.id)).length === 0) return 'gap';
    this.#verified = true;
    return null;
  }

  async #position(): Promise<{ epoch: string; version: number; complete: boolean; id: string }> {
    const { client, keys } = this.#deps;
    const replies = await client
      .multi()
      .hmget(keys.meta, 'epoch', 'version', 'complete')
      .xrevrange(keys.log, '+', '-', 'COUNT', 1)
      .exec();
    const [meta, last] = (replies ?? []).map(([error, reply]) => {
      if (error !== null) throw error;
      return reply;
    });
    const [epoch, version, complete] = meta as (string | null)[];
    const entries = last as [id: string, fields: string[]][];
    return {
      epoch: epoch ?? '',
      version: Number(version ?? 0),
      complete: epoch !== null && complete === '1',
      id: entries[0]?.[0] ?? '0-0',
    };
  }

  async #handle(call: () => void | Promise<void>): Promise<void> {
    try {
      await call();
    } catch (error) {
      throw new HandlerFailure(errorText(error), { cause: error });
    }
  }
}

/** Reads the next entries behind `id`; waits for the first for a bounded time. */
async function readLog(client: RedisClient, log: string, id: string): Promise<readonly RawEntry[]> {
  const reply = await client.xreadBuffer(
    'COUNT',
    FOLLOW_SLICE_ENTRIES,
    'BLOCK',
    blockTimeMs(),
    'STREAMS',
    log,
    id,
  );
  const streams = (reply ?? []) as unknown as readonly [Buffer, readonly RawEntry[]][];
  return streams[0]?.[1] ?? [];
}
