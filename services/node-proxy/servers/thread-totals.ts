import type { ThreadHandle } from '../pool/thread-handle.ts';
import type { KnownRow } from '../../../lib/metrics/series-memory.ts';
import type { MetricSample } from '../../../workers/listener/protocol/control.ts';

type SeriesSource = Pick<ThreadHandle, 'series' | 'refresh'>;

/** Rows kept from threads that died; more distinct label sets in one process would be a defect elsewhere. */
const MAX_RETIRED_ROWS = 50_000;

interface Sum {
  readonly row: KnownRow;
  readonly values: number[];
}

/** Sums equal series over the listener threads. Counters of a thread that died stay in the sum, so that totals never fall. */
export class ThreadTotals {
  readonly #retired = new Map<string, Sum>();
  readonly #gone = new WeakSet<SeriesSource>();

  /** Returns the sums now. A thread that does not answer counts with its last values, and `missed` gets the error. */
  async collect(
    sources: Iterable<SeriesSource>,
    missed: (error: unknown) => void,
  ): Promise<readonly MetricSample[]> {
    const all = [...sources];
    await Promise.all(all.map((source) => source.refresh().catch(missed)));
    const sums = new Map<string, Sum>();
    for (const [key, { row, values }] of this.#retired) {
      sums.set(key, { row, values: [...values] });
    }
    for (const source of all) {
      // A thread that died meanwhile is among the retired.
      if (!this.#gone.has(source)) source.series.forEach((row, value) => add(sums, row, value));
    }
    return [...sums.values()].flatMap(({ row, values }) =>
      row.series.map((series, index) => ({ ...series, value: values[index] ?? 0 })),
    );
  }

  /** Keeps the counters of a thread that is gone; its gauges go. */
  retire(source: SeriesSource): void {
    this.#gone.add(source);
    source.series.forEach((row, value) => {
      if (row.series[0]?.kind === 'gauge') return;
      if (this.#retired.size >= MAX_RETIRED_ROWS && !this.#retired.has(row.key)) return;
      add(this.#retired, row, value);
    });
  }
}

function add(sums: Map<string, Sum>, row: KnownRow, value: (index: number) => number): void {
  const known = sums.get(row.key);
  if (known === undefined) {
    sums.set(row.key, { row, values: row.series.map((_, index) => value(index)) });
    return;
  }
  for (const [index, sum] of known.values.entries()) known.values[index] = sum + value(index);
}
