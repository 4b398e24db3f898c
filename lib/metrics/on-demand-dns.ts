/** Counts look-ups of names of workloads that have no address (docs/spec/observability.md §2). */
import type { SeriesRow, SeriesWriter } from './series-memory.ts';
import type { TrafficWorkload } from './traffic-labels.ts';
import { sourceLabels } from './traffic-labels.ts';

/** Most series: sources times names of the mesh. Further names count under `unknown`. */
export const MAX_ON_DEMAND_SERIES = 1_000;

const NAME = 'istio_on_demand_dns_total';
const HELP = 'The total number of requests that used on-demand DNS';

/** The counters of one thread. */
export class OnDemandDns {
  readonly #series: SeriesWriter;
  readonly #max: number;
  readonly #counts = new Map<string, SeriesRow>();

  constructor(series: SeriesWriter, max: number = MAX_ON_DEMAND_SERIES) {
    this.#series = series;
    this.#max = max;
  }

  /** Counts a look-up on behalf of a connection of `source`. */
  count(source: TrafficWorkload, hostname: string): void {
    const full = this.#counts.size >= this.#max;
    const key = `${source.clusterId} ${source.namespace} ${source.workloadName} ${source.canonicalRevision} ${hostname}`;
    const known = this.#counts.get(key) ?? (full ? this.#counts.get('') : undefined);
    if (known !== undefined) {
      known.add(0);
      return;
    }
    const labels = sourceLabels(full ? null : source);
    const named = ['hostname', full ? 'unknown' : hostname] as const;
    const row = this.#series.row([
      { name: NAME, kind: 'counter', help: HELP, labels: [...labels, named] },
    ]);
    this.#counts.set(full ? '' : key, row);
    row.add(0);
  }
}
