import test from 'ava';
import { BucketCounts } from '../../../../lib/metrics/bucket-counts.ts';

test('durations fall into cumulative buckets, in seconds', (t) => {
  const counts = new BucketCounts([0.001, 1]);
  t.deepEqual(counts.samples('x_seconds', 'h'), []);
  for (const ms of [0, 1, 1.5, 1_000, 1_001, 60_000]) counts.observe(ms);
  const samples = counts.samples('x_seconds', 'h', [['to', 'peer']]);
  t.deepEqual(
    samples.map(({ name, labels, value }) => [name, new Map(labels).get('le') ?? '', value]),
    [
      ['x_seconds_bucket', '0.001', 2],
      ['x_seconds_bucket', '1.0', 4],
      ['x_seconds_bucket', '+Inf', 6],
      ['x_seconds_sum', '', 62.0035],
      ['x_seconds_count', '', 6],
    ],
  );
  t.true(samples.every(({ labels }) => labels[0]?.[0] === 'to'));
});
