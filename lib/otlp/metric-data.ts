/** Turns families of a registry into OTLP metrics. Names stay as Prometheus has them, so that Istio's queries work on both. */
import type { Attributes, HrTime } from '@opentelemetry/api';
import { ValueType } from '@opentelemetry/api';
import { AggregationTemporality, DataPointType } from '@opentelemetry/sdk-metrics';
import type { DataPoint, Histogram, MetricData } from '@opentelemetry/sdk-metrics';
import type { RegistryFamily } from '../metrics/registry.ts';
import { hrTime } from './model.ts';

type Sample = RegistryFamily['samples'][number];

/** The span of time that values cover, epoch milliseconds. */
export interface MetricTimes {
  readonly startMs: number;
  readonly nowMs: number;
}

/** The host sets it on every metric of an actor; in OTLP the scope names the actor. */
const HOST_LABEL = 'actor';
const BUCKET_LABEL = 'le';

/** Converts the families that have samples. Leaves out values that are not finite, which OTLP cannot express. */
export function metricData(
  families: readonly RegistryFamily[],
  { startMs, nowMs }: MetricTimes,
): MetricData[] {
  const times = { startTime: hrTime(startMs), endTime: hrTime(nowMs) };
  return families.flatMap((family) => {
    const data = familyData(family, times);
    return data.dataPoints.length === 0 ? [] : [data];
  });
}

function familyData(
  family: RegistryFamily,
  times: { readonly startTime: HrTime; readonly endTime: HrTime },
): MetricData {
  const base = {
    descriptor: {
      name: family.name,
      description: family.help,
      unit: '',
      valueType: ValueType.DOUBLE,
    },
    aggregationTemporality: AggregationTemporality.CUMULATIVE,
  };
  if (family.type === 'histogram') {
    return {
      ...base,
      dataPointType: DataPointType.HISTOGRAM,
      dataPoints: histogramPoints(family, times),
    };
  }
  const dataPoints = family.samples
    .filter(({ value }) => Number.isFinite(value))
    .map(({ labels, value }) => ({ ...times, attributes: attributesOf(labels), value }));
  return family.type === 'counter'
    ? { ...base, dataPointType: DataPointType.SUM, isMonotonic: true, dataPoints }
    : { ...base, dataPointType: DataPointType.GAUGE, dataPoints };
}

/** Makes one point for each set of labels, from its buckets, sum and count. */
function histogramPoints(
  family: RegistryFamily,
  times: { readonly startTime: HrTime; readonly endTime: HrTime },
): DataPoint<Histogram>[] {
  const series = Map.groupBy(family.samples, ({ labels }) =>
    JSON.stringify(labels.filter(([name]) => name !== BUCKET_LABEL)),
  );
  return [...series.values()].map((samples) => {
    const [first] = samples;
    return {
      ...times,
      attributes: attributesOf(first?.labels ?? []),
      value: histogramOf(samples),
    };
  });
}

/** Makes OTLP's buckets, which count observations between two bounds, from those of Prometheus, which count all up to a bound. */
function histogramOf(samples: readonly Sample[]): Histogram {
  const upTo = samples
    .filter(({ name }) => name.endsWith('_bucket'))
    .map(({ labels, value }) => ({ bound: boundOf(labels), value }))
    .sort((a, b) => a.bound - b.bound);
  const ending = (suffix: string): number =>
    samples.find(({ name }) => name.endsWith(suffix))?.value ?? 0;
  return {
    buckets: {
      boundaries: upTo.map(({ bound }) => bound).filter(Number.isFinite),
      counts: upTo.map(({ value }, index) => value - (upTo[index - 1]?.value ?? 0)),
    },
    count: ending('_count'),
    sum: ending('_sum'),
  };
}

function boundOf(labels: Sample['labels']): number {
  const text = labels.find(([name]) => name === BUCKET_LABEL)?.[1];
  return text === undefined || text === '+Inf' ? Infinity : Number(text);
}

function attributesOf(labels: Sample['labels']): Attributes {
  return Object.fromEntries(
    labels.filter(([name]) => name !== HOST_LABEL && name !== BUCKET_LABEL),
  );
}
