import { MetricRegistry } from '../metrics/registry.ts';
import type { RegistryFamily } from '../metrics/registry.ts';
import type { DropReason, ExportCounts } from './export-queue.ts';
import type { Signal } from './settings.ts';

/** Returns the items that wait now; null where there is no queue. */
export interface QueueDepths {
  traces(): number | null;
  logs(): number | null;
}

/** The export's own counters. */
export class ExportMetrics implements ExportCounts {
  readonly registry = new MetricRegistry();
  readonly #sent;
  readonly #dropped;
  readonly #failed;

  constructor(depths: QueueDepths) {
    const { registry } = this;
    this.#sent = registry.counter(
      'weft_otlp_items_sent_total',
      'Spans, access lines and metric points that a collector took',
      ['signal'],
    );
    this.#dropped = registry.counter(
      'weft_otlp_items_dropped_total',
      'Spans and access lines that were not sent: no room in the queue or in that of a listener thread, refused by the collector, or left at the end of the process',
      ['signal', 'reason'],
    );
    this.#failed = registry.counter(
      'weft_otlp_exports_failed_total',
      'Requests that a collector did not take, after all retries',
      ['signal'],
    );
    registry.gauge(
      'weft_otlp_queue_items',
      'Spans and access lines that wait for the collector',
      ['signal'],
      (gauge) => {
        for (const signal of ['traces', 'logs'] as const) {
          const depth = depths[signal]();
          if (depth !== null) gauge.set({ signal }, depth);
        }
      },
    );
  }

  sent(signal: Signal, items: number): void {
    this.#sent.inc({ signal }, items);
  }

  dropped(signal: Signal, reason: DropReason, items: number): void {
    this.#dropped.inc({ signal, reason }, items);
  }

  failed(signal: Signal): void {
    this.#failed.inc({ signal });
  }

  families(): Promise<readonly RegistryFamily[]> {
    return this.registry.families();
  }
}
