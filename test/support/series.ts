import type { LabelSetOptions } from '../../lib/metrics/label-sets.ts';
import { SeriesReader, SeriesWriter } from '../../lib/metrics/series-memory.ts';
import type { SeriesMessage } from '../../lib/metrics/series-memory.ts';
import { TrafficMetrics } from '../../lib/metrics/traffic.ts';
import type { MetricSample } from '../../workers/listener/protocol/control.ts';

/** Makes a writer of series and its reader, with a structured clone between them as between threads. */
export function seriesKit() {
  const reader = new SeriesReader();
  const told: SeriesMessage[] = [];
  const writer: SeriesWriter = new SeriesWriter((message) => {
    told.push(message);
    const released = reader.take(structuredClone(message));
    if (released !== null) writer.released(released);
  });
  return { writer, reader, told, samples: () => samplesOf(reader) };
}

/** Returns all current values of a reader. */
export function samplesOf(reader: SeriesReader): MetricSample[] {
  const samples: MetricSample[] = [];
  reader.forEach(({ series }, value) => {
    for (const [index, one] of series.entries()) samples.push({ ...one, value: value(index) });
  });
  return samples;
}

/** Makes traffic counters; `samples` returns the samples of a scrape. */
export function trafficKit(options: LabelSetOptions = {}) {
  const kit = seriesKit();
  const metrics = new TrafficMetrics(kit.writer, options);
  const samples = (): MetricSample[] => {
    for (const _ of metrics.refresh());
    const seen = kit.samples();
    metrics.sweep();
    return seen;
  };
  return {
    ...kit,
    metrics,
    open: metrics.open.bind(metrics),
    socketOpened: metrics.socketOpened.bind(metrics),
    samples,
  };
}
