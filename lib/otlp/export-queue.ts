import type { Clock, Timer } from '../clock/clock.ts';
import { withTimeLimit } from '../async/time-limit.ts';
import type { Logger } from '../log/logger.ts';
import { DROP_LOG_INTERVAL_MS } from './limits.ts';
import type { QueueSettings, Signal } from './settings.ts';

/** The reason why an item was not sent. */
export type DropReason = 'queue-full' | 'thread-full' | 'refused' | 'process-end';

/** The outcome of a request. A `failed` one may be tried again, a `refused` one may not. */
export type SendResult =
  | { readonly kind: 'sent' }
  | { readonly kind: 'failed' | 'refused'; readonly error: string };

/** Counts the outcomes. */
export interface ExportCounts {
  sent(signal: Signal, items: number): void;
  dropped(signal: Signal, reason: DropReason, items: number): void;
  failed(signal: Signal): void;
}

/** Ports of an {@link ExportQueue}. */
export interface QueueDependencies<Item> {
  readonly clock: Clock;
  readonly log: Logger;
  readonly counts: ExportCounts;
  /** Never rejects. */
  send(items: readonly Item[]): Promise<SendResult>;
}

/**
 * Sends items to a collector in batches, one request at a time. Items of a failed request are kept and tried again, also over a
 * long outage. Beyond the bound the newest items are dropped, counted and logged. {@link add} never waits.
 */
export class ExportQueue<Item> {
  readonly #signal: Signal;
  readonly #settings: QueueSettings;
  readonly #deps: QueueDependencies<Item>;
  #items: Item[] = [];
  /** Number of items, from the first on, that are in the present request. */
  #inFlight = 0;
  #sending: Promise<boolean> | null = null;
  #timer: Timer | null = null;
  #failing = false;
  #droppedSinceLog = 0;
  #dropLoggedMs = -Infinity;
  #closed = false;

  constructor(signal: Signal, settings: QueueSettings, deps: QueueDependencies<Item>) {
    this.#signal = signal;
    this.#settings = settings;
    this.#deps = deps;
  }

  /** Items that are not sent yet. */
  get length(): number {
    return this.#items.length;
  }

  /** Adds as many items as fit. */
  add(items: readonly Item[]): void {
    const room = this.#closed ? 0 : Math.max(0, this.#settings.maxItems - this.#items.length);
    for (const item of items.slice(0, room)) this.#items.push(item);
    if (items.length > room)
      this.dropped(items.length - room, this.#closed ? 'process-end' : 'queue-full');
    this.#schedule();
  }

  /** Counts items that were lost, here or on their way here, and logs the number from time to time. */
  dropped(items: number, reason: DropReason): void {
    if (items === 0) return;
    const { clock, log, counts } = this.#deps;
    counts.dropped(this.#signal, reason, items);
    this.#droppedSinceLog += items;
    if (clock.monotonic() - this.#dropLoggedMs < DROP_LOG_INTERVAL_MS) return;
    this.#dropLoggedMs = clock.monotonic();
    const dropped = this.#droppedSinceLog;
    this.#droppedSinceLog = 0;
    const { maxItems } = this.#settings;
    log.warn({ signal: this.#signal, reason, dropped, maxItems }, 'otlp.items-dropped');
  }

  /** Sends the remaining items for at most `limitMs`, and drops the rest. Returns false when a request is still open. */
  async close(limitMs: number): Promise<boolean> {
    this.#closed = true;
    this.#timer?.cancel();
    this.#timer = null;
    const { clock } = this.#deps;
    let done = true;
    try {
      const flushing = this.#flush(clock.monotonic() + limitMs);
      const what = 'the collector did not take everything';
      await withTimeLimit(clock, flushing, { limitMs, what, release: () => undefined });
    } catch {
      // Out of time: the remaining items are counted below.
      done = false;
    }
    this.dropped(this.#items.length, 'process-end');
    this.#items = [];
    this.#inFlight = 0;
    return done;
  }

  async #flush(untilMs: number): Promise<void> {
    if (this.#sending !== null && !(await this.#sending)) return;
    while (this.#items.length > 0 && this.#deps.clock.monotonic() < untilMs) {
      if (!(await this.#sendBatch())) return;
    }
  }

  #schedule(): void {
    if (this.#closed || this.#sending !== null || this.#items.length === 0) return;
    const full = this.#items.length >= this.#settings.batchItems;
    if (full && !this.#failing) {
      this.#timer?.cancel();
      this.#timer = null;
      void this.#sendBatch();
      return;
    }
    this.#timer ??= this.#deps.clock.after(this.#settings.delayMs, () => {
      this.#timer = null;
      if (this.#sending === null) void this.#sendBatch();
    });
  }

  /** Resolves with whether the next batch may follow at once. */
  #sendBatch(): Promise<boolean> {
    const batch = this.#items.slice(0, this.#settings.batchItems);
    this.#inFlight = batch.length;
    const sending = this.#deps.send(batch).then((result) => this.#answered(batch.length, result));
    this.#sending = sending;
    return sending;
  }

  #answered(items: number, result: SendResult): boolean {
    const { counts } = this.#deps;
    this.#sending = null;
    // Zero when close() ran out of time: it has counted these items as dropped.
    const settled = this.#inFlight;
    this.#inFlight = 0;
    if (result.kind !== 'failed' && settled > 0) this.#items.splice(0, settled);
    if (result.kind === 'sent' && settled > 0) counts.sent(this.#signal, items);
    if (result.kind === 'refused' && settled > 0) this.dropped(items, 'refused');
    this.#report(result);
    this.#schedule();
    return result.kind !== 'failed';
  }

  /** Logs the first failure and the first success after it. */
  #report(result: SendResult): void {
    const { log, counts } = this.#deps;
    const signal = this.#signal;
    if (result.kind === 'sent') {
      if (this.#failing) log.info({ signal }, 'otlp.export-resumed');
      this.#failing = false;
      return;
    }
    counts.failed(signal);
    const { error } = result;
    if (!this.#failing) log.warn({ signal, kind: result.kind, error }, 'otlp.export-failed');
    this.#failing = true;
  }
}
