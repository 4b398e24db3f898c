import test from 'ava';
import { SeriesReader, SeriesWriter } from '../../../../lib/metrics/series-memory.ts';
import type { Series, SeriesMessage } from '../../../../lib/metrics/series-memory.ts';
import { histogramSeries, observeInto } from '../../../../lib/metrics/bucket-counts.ts';
import { samplesOf, seriesKit } from '../../../support/series.ts';

const counter = (name: string, label = 'x'): Series => ({
  name,
  kind: 'counter',
  help: 'h',
  labels: [['l', label]],
});

test('what a series is called is told once, its value is read from memory', (t) => {
  const { writer, told, samples } = seriesKit();
  const row = writer.row([counter('a_total'), counter('b_total')]);
  const messages = told.length;
  row.add(0, 2);
  row.add(0);
  row.set(1, 7.5);
  t.deepEqual(
    samples().map(({ name, value }) => [name, value]),
    [
      ['a_total', 3],
      ['b_total', 7.5],
    ],
  );
  t.is(told.length, messages);
  for (let round = 1; round <= 3; round += 1) {
    writer.publish([{ ...counter('g'), kind: 'gauge', value: round }]);
  }
  t.is(told.length, messages + 1);
  t.is(samples().at(-1)?.value, 3);
});

test('rows go on in further memory, each in one piece of it', (t) => {
  const { writer, told, samples } = seriesKit();
  const count = 1_000;
  for (let index = 0; index < count; index += 1) {
    const row = writer.row(['a', 'b', 'c'].map((name) => counter(name, String(index))));
    for (const place of [0, 1, 2]) row.set(place, index * 3 + place);
  }
  t.deepEqual(
    samples().map(({ value }) => value),
    Array.from({ length: 3 * count }, (_, index) => index),
  );
  t.is(told.filter(({ kind }) => kind === 'memory').length, 3);
});

test('a row is used again only when its reader has let go of it, and begins at zero', (t) => {
  const told: SeriesMessage[] = [];
  const writer = new SeriesWriter((message) => told.push(message));
  const reader = new SeriesReader();
  const first = writer.row([counter('first')]);
  first.add(0, 9);
  writer.release(first);
  const second = writer.row([counter('second')]);
  t.not(second.at, first.at);
  const released = told.map((message) => reader.take(message)).filter((at) => at !== null);
  t.deepEqual(released, [first.at]);
  writer.released(first.at);
  writer.released(first.at);
  const third = writer.row([counter('third')]);
  t.is(third.at, first.at);
  for (const message of told.slice(-1)) reader.take(message);
  t.deepEqual(
    samplesOf(reader).map(({ name, value }) => [name, value]),
    [
      ['second', 0],
      ['third', 0],
    ],
  );
  t.not(writer.row([counter('fourth')]).at, first.at);
});

test('a histogram in a row is cumulative, in seconds', (t) => {
  const { writer, samples } = seriesKit();
  const bounds = [0.001, 1];
  const row = writer.row([counter('n_total'), ...histogramSeries('d', 'h', [['l', 'x']], bounds)]);
  for (const ms of [1, 500, 2_500]) observeInto(row, 1, bounds, ms);
  t.deepEqual(
    samples().map(({ name, labels, value }) => [name, labels.at(-1)?.[1], value]),
    [
      ['n_total', 'x', 0],
      ['d_bucket', '0.001', 1],
      ['d_bucket', '1.0', 2],
      ['d_bucket', '+Inf', 3],
      ['d_sum', 'x', 3.001],
      ['d_count', 'x', 3],
    ],
  );
});
