import type { MetricSample } from '../../../workers/listener/protocol.ts';

/** A source of samples: one listener thread. */
export interface SampleSource {
  metrics(): Promise<readonly MetricSample[]>;
}

/** Series kept of threads that died; more distinct label sets than this in one process is a defect elsewhere. */
const MAX_RETIRED_SERIES = 50_000;

/**
 * Sums equal series over the listener threads. Counters of a thread that died stay in the sum, as last seen, so
 * that totals never fall.
 */
export class ThreadTotals {
  readonly #last = new Map<SampleSource, readonly MetricSample[]>();
  readonly #retired = new Map<string, MetricSample>();

  /** The sums now. A thread that does not answer counts with what it said last; `missed` is told. */
  async collect(
    sources: Iterable<SampleSource>,
    missed: (error: unknown) => void,
  ): Promise<readonly MetricSample[]> {
    const reports = await Promise.all(
      [...sources].map(async (source) => {
        try {
          const samples = await source.metrics();
          this.#last.set(source, samples);
          return samples;
        } catch (error) {
          missed(error);
          return this.#last.get(source) ?? [];
        }
      }),
    );
    const sums = new Map<string, MetricSample>();
    for (const sample of this.#retired.values()) add(sums, sample);
    for (const sample of reports.flat()) add(sums, sample);
    return [...sums.values()];
  }

  /** The thread is gone: its counters stay, its gauges go. */
  retire(source: SampleSource): void {
    for (const sample of this.#last.get(source) ?? []) {
      if (sample.kind === 'gauge') continue;
      if (this.#retired.size >= MAX_RETIRED_SERIES && !this.#retired.has(seriesOf(sample)))
        continue;
      add(this.#retired, sample);
    }
    this.#last.delete(source);
  }
}

function add(sums: Map<string, MetricSample>, sample: MetricSample): void {
  const series = seriesOf(sample);
  const known = sums.get(series);
  sums.set(series, known === undefined ? sample : { ...known, value: known.value + sample.value });
}

function seriesOf(sample: MetricSample): string {
  return JSON.stringify([sample.name, sample.labels]);
}
