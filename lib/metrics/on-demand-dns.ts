/** Names that were looked up because a workload is known by its name alone (docs/spec/observability.md §2). */
import type { TrafficWorkload } from './traffic-labels.ts';
import { sourceLabels } from './traffic-labels.ts';
import type { TrafficSample } from './traffic.ts';

/** Series kept: sources times names of the mesh. What comes after is counted under `unknown`. */
export const MAX_ON_DEMAND_SERIES = 1_000;

const NAME = 'istio_on_demand_dns_total';
const HELP = 'The total number of requests that used on-demand DNS';

/** The counters of one thread. */
export class OnDemandDns {
  readonly #max: number;
  readonly #counts = new Map<string, { labels: TrafficSample['labels']; value: number }>();

  constructor(max: number = MAX_ON_DEMAND_SERIES) {
    this.#max = max;
  }

  /** Counts a look-up on behalf of a connection of `source`. */
  count(source: TrafficWorkload, hostname: string): void {
    const full = this.#counts.size >= this.#max;
    const key = `${source.clusterId} ${source.namespace} ${source.workloadName} ${source.canonicalRevision} ${hostname}`;
    const known = this.#counts.get(key) ?? (full ? this.#counts.get('') : undefined);
    if (known !== undefined) {
      known.value += 1;
      return;
    }
    const labels = sourceLabels(full ? null : source);
    const named = ['hostname', full ? 'unknown' : hostname] as const;
    this.#counts.set(full ? '' : key, { labels: [...labels, named], value: 1 });
  }

  /** Nothing while nothing was counted. */
  samples(): TrafficSample[] {
    return [...this.#counts.values()].map(({ labels, value }) => ({
      name: NAME,
      kind: 'counter',
      help: HELP,
      labels,
      value,
    }));
  }
}
