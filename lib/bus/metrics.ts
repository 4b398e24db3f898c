import type { Counter } from 'prom-client';
import type { MetricRegistry } from '../metrics/registry.ts';

/** Counters of a process's bus. */
export interface BusMetrics {
  readonly malformed: Counter<'table'>;
  readonly resyncs: Counter<'table' | 'reason'>;
  readonly parked: Counter<'queue'>;
  readonly jobs: Counter<'queue' | 'outcome'>;
  readonly leaseChanges: Counter<'lease' | 'to'>;
}

/** Declares the metrics; each scrape calls `connected`. */
export function createBusMetrics(registry: MetricRegistry, connected: () => boolean): BusMetrics {
  registry.gauge('weft_bus_connected', '1 while Redis answers', [], (gauge) =>
    gauge.set(connected() ? 1 : 0),
  );
  return {
    malformed: registry.counter(
      'weft_bus_malformed_total',
      'Rows and change log entries that could not be read and were skipped',
      ['table'],
    ),
    resyncs: registry.counter(
      'weft_bus_resyncs_total',
      'Full copies of a table after the first, by reason',
      ['table', 'reason'],
    ),
    parked: registry.counter(
      'weft_bus_parked_total',
      'Messages that this process cannot read, put aside as dead letters',
      ['queue'],
    ),
    jobs: registry.counter('weft_bus_jobs_total', 'Attempts of jobs, by outcome', [
      'queue',
      'outcome',
    ]),
    leaseChanges: registry.counter('weft_bus_lease_changes_total', 'Leases won and lost', [
      'lease',
      'to',
    ]),
  };
}
