import type { Clock, Timer } from '../clock/clock.ts';
import { withTimeLimit } from '../async/time-limit.ts';
import type { Logger } from '../log/logger.ts';
import { DROP_LOG_INTERVAL_MS } from './limits.ts';
import type { QueueSettings, Signal } from './settings.ts';

/** Why an item was not sent. */
export type DropReason = 'queue-full' | 'thread-full' | 'refused' | 'process-end';

/** What a collector made of a request. `failed` may be tried again, `refused` may not. */
export type SendResult =
  | { readonly kind: 'sent' }
  | { readonly kind: 'failed' | 'refused'; readonly error: string };

/** What is counted. */
export interface ExportCounts {
  sent(signal: Signal, items: number): void;
  dropped(signal: Signal, reason: DropReason, items: number): void;
  failed(signal: Signal): void;
}

/** What a queue works with. */
export interface QueueDependencies<Item> {
  readonly clock: Clock;
  readonly log: Logger;
  readonly counts: ExportCounts;
  /** Never rejects. */
  send(items: readonly Item[]): Promise<SendResult>;
}

/**
 * Items on their way to a collector: sent in batches, one request at a time. What a collector cannot be given now is kept and
 * tried again; beyond the bound the newest items are dropped, counted and told of. {@link add} never waits.
 */
export class ExportQueue<Item> {
  readonly #signal: Signal;
  readonly #settings: QueueSettings;
  readonly #deps: QueueDependencies<Item>;
  #items: Item[] = [];
  /** How many of the first items are in a request. */
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

  /** Takes as many as fit. */
  add(items: readonly Item[]): void {
    const room = this.#closed ? 0 : Math.max(0, this.#settings.maxItems - this.#items.length);
    for (const item of items.slice(0, room)) this.#items.push(item);
    if (items.length > room)
      this.dropped(items.length - room, this.#closed ? 'process-end' : 'queue-full');
    this.#schedule();
  }

  /** Counts items that were lost, here or before they came here, and says so from time to time. */
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

  /** Sends what is there, for at most `limitMs`; what is left then is dropped. False when a request is still out. */
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
      // Out of time: the items that are left say so.
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
    // Zero once the queue was closed over the request, which has counted its items as dropped.
    const settled = this.#inFlight;
    this.#inFlight = 0;
    if (result.kind !== 'failed' && settled > 0) this.#items.splice(0, settled);
    if (result.kind === 'sent' && settled > 0) counts.sent(this.#signal, items);
    if (result.kind === 'refused' && settled > 0) this.dropped(items, 'refused');
    this.#tell(result);
    this.#schedule();
    return result.kind !== 'failed';
  }

  /** The first failure and the first success after it are said. */
  #tell(result: SendResult): void {
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
