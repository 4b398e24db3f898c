/** A histogram in plain numbers: an observation is a search in a short array. */

import type { Series, SeriesRow } from './series-memory.ts';

/** A value of a histogram, named with its suffix. */
export interface HistogramSample {
  readonly name: string;
  readonly kind: 'histogram';
  readonly help: string;
  readonly labels: readonly (readonly [name: string, value: string])[];
  readonly value: number;
}

const MS_PER_SECOND = 1_000;

/** Upper bounds in seconds, from a local connect to a time-out. */
export const LATENCY_BOUNDS: readonly number[] = [
  0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
];

/** Counts of one series of a duration histogram. */
export class BucketCounts {
  readonly #bounds: readonly number[];
  /** One more than bounds: the last counts values above all bounds. */
  readonly #counts: number[];
  #sumMs = 0;

  constructor(bounds: readonly number[] = LATENCY_BOUNDS) {
    this.#bounds = bounds;
    this.#counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** Counts a duration given in milliseconds. */
  observe(ms: number): void {
    const seconds = ms / MS_PER_SECOND;
    let index = 0;
    while (seconds > (this.#bounds[index] ?? Infinity)) index += 1;
    this.#counts[index] = (this.#counts[index] ?? 0) + 1;
    this.#sumMs += ms;
  }

  /** Returns the series in cumulative form, in seconds; none while it is empty. */
  samples(
    name: string,
    help: string,
    labels: readonly (readonly [string, string])[] = [],
  ): HistogramSample[] {
    let total = 0;
    const buckets = this.#counts.map((count, index): HistogramSample => {
      total += count;
      const le = boundText(this.#bounds[index] ?? Infinity);
      return sample(`${name}_bucket`, help, [...labels, ['le', le]], total);
    });
    if (total === 0) return [];
    return [
      ...buckets,
      sample(`${name}_sum`, help, labels, this.#sumMs / MS_PER_SECOND),
      sample(`${name}_count`, help, labels, total),
    ];
  }
}

/** Returns the series of a duration histogram, in the order of {@link observeInto}: buckets, sum, count. */
export function histogramSeries(
  name: string,
  help: string,
  labels: Series['labels'],
  bounds: readonly number[],
): Series[] {
  const series = (suffix: string, own = labels): Series => ({
    name: `${name}_${suffix}`,
    kind: 'histogram',
    help,
    labels: own,
  });
  const buckets = [...bounds, Infinity].map((bound) =>
    series('bucket', [...labels, ['le', boundText(bound)]]),
  );
  return [...buckets, series('sum'), series('count')];
}

/** Counts a duration in milliseconds in the series of a histogram, which are in the row from `first` on. */
export function observeInto(
  row: SeriesRow,
  first: number,
  bounds: readonly number[],
  ms: number,
): void {
  const seconds = ms / MS_PER_SECOND;
  // Each bucket includes those below it.
  for (let index = 0; index <= bounds.length; index += 1) {
    if (seconds <= (bounds[index] ?? Infinity)) row.add(first + index);
  }
  row.add(first + bounds.length + 1, seconds);
  row.add(first + bounds.length + 2);
}

/** Formats a bound as a floating-point number, as OpenMetrics requires. */
function boundText(bound: number): string {
  if (bound === Infinity) return '+Inf';
  return Number.isInteger(bound) ? `${bound}.0` : String(bound);
}

function sample(
  name: string,
  help: string,
  labels: readonly (readonly [string, string])[],
  value: number,
): HistogramSample {
  return { name, kind: 'histogram', help, labels, value };
}
