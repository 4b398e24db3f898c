import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { FakeClock } from '../../../support/fake-clock.ts';
import { seriesKit } from '../../../support/series.ts';
import { gunzipSync } from 'node:zlib';
import type { MetricSample } from '../../../../workers/listener/protocol/control.ts';
import {
  chooseEncoding,
  encodeBody,
} from '../../../../services/node-proxy/servers/content-encoding.ts';
import {
  acceptsOpenMetrics,
  familiesOf,
  renderOpenMetrics,
} from '../../../../services/node-proxy/servers/open-metrics.ts';
import { PAGE_INTERVAL_MS, PacedPage } from '../../../../services/node-proxy/servers/paced-page.ts';
import { ThreadTotals } from '../../../../services/node-proxy/servers/thread-totals.ts';

const sample = (parts: Partial<MetricSample>): MetricSample => ({
  name: 'istio_tcp_connections_opened_total',
  kind: 'counter',
  help: 'The total number of TCP connections opened',
  labels: [['reporter', 'source']],
  value: 1,
  ...parts,
});

/** Makes a thread with these values. */
function source(...samples: MetricSample[]) {
  const { writer, reader } = seriesKit();
  writer.publish(samples);
  return { series: reader, refresh: () => Promise.resolve(), publish: writer.publish.bind(writer) };
}

// spec: observability.md §1
test('the text is OpenMetrics: the family without _total, labels escaped, an end', (t) => {
  const families = familiesOf([
    sample({ labels: [['a', 'say "x"\n\\']] }),
    sample({ name: 'open', kind: 'gauge', labels: [], value: 2.5 }),
  ]);
  t.is(
    renderOpenMetrics([...families, { name: 'none', type: 'gauge', help: 'h', samples: [] }]),
    [
      '# HELP istio_tcp_connections_opened The total number of TCP connections opened',
      '# TYPE istio_tcp_connections_opened counter',
      String.raw`istio_tcp_connections_opened_total{a="say \"x\"\n\\"} 1`,
      '# HELP open The total number of TCP connections opened',
      '# TYPE open gauge',
      'open 2.5',
      '# EOF',
      '',
    ].join('\n'),
  );
});

// spec: observability.md §1
test('OpenMetrics is announced only to those who ask for it', (t) => {
  t.true(acceptsOpenMetrics('text/plain, application/openmetrics-text; version=1.0.0;q=0.5'));
  t.false(acceptsOpenMetrics('text/plain'));
  t.false(acceptsOpenMetrics(undefined));
});

test('equal series are summed over the threads', async (t) => {
  const totals = new ThreadTotals();
  const sum = await totals.collect(
    [
      source(sample({ value: 2 }), sample({ name: 'g', kind: 'gauge', value: 1 })),
      source(sample({ value: 3 }), sample({ labels: [['reporter', 'destination']] })),
    ],
    () => t.fail(),
  );
  t.deepEqual(
    sum.map(({ name, labels, value }) => [name, labels[0]?.[1], value]),
    [
      ['istio_tcp_connections_opened_total', 'source', 5],
      ['g', 'source', 1],
      ['istio_tcp_connections_opened_total', 'destination', 1],
    ],
  );
});

test('totals do not fall when a thread dies, its gauges go', async (t) => {
  const totals = new ThreadTotals();
  const dying = source(sample({ value: 7 }), sample({ name: 'g', kind: 'gauge', value: 4 }));
  await totals.collect([dying], () => t.fail());
  totals.retire(dying);
  const after = await totals.collect([source(sample({ value: 1 }))], () => t.fail());
  t.deepEqual(
    after.map(({ name, value }) => [name, value]),
    [['istio_tcp_connections_opened_total', 8]],
  );
});

test('a thread that dies during a scrape counts once', async (t) => {
  const totals = new ThreadTotals();
  const dying = source(sample({ value: 7 }));
  const refresh = (): Promise<void> => {
    totals.retire(dying);
    return Promise.reject(new Error('gone'));
  };
  const missed: unknown[] = [];
  const sums = await totals.collect([Object.assign(dying, { refresh })], (error) =>
    missed.push(error),
  );
  t.is(sums[0]?.value, 7);
  t.is(missed.length, 1);
});

test('a thread that does not answer counts with what its memory holds', async (t) => {
  const totals = new ThreadTotals();
  const late = () => Promise.reject(new Error('late'));
  const thread = { ...source(sample({ value: 7 })), refresh: late };
  const missed: unknown[] = [];
  const after = await totals.collect([thread], (error) => missed.push(error));
  t.is(after[0]?.value, 7);
  t.is(missed.length, 1);
});

// spec: observability.md §1
test('the encoding with the highest weight is used', (t) => {
  t.is(chooseEncoding('gzip, br;q=0.5'), 'gzip');
  t.is(chooseEncoding('gzip, zstd'), 'zstd');
  t.is(chooseEncoding('gzip;q=0, *;q=0.1'), 'zstd');
  t.is(chooseEncoding('identity'), null);
  t.is(chooseEncoding(undefined), null);
});

test('only bodies worth it are compressed, and they come back whole', async (t) => {
  const text = 'x'.repeat(5_000);
  const long = await encodeBody(text, 'gzip');
  t.is(long.encoding, 'gzip');
  t.is(gunzipSync(long.body).toString(), text);
  t.is((await encodeBody('short', 'gzip')).encoding, null);
});

test('a page is made once a second at most, for all who asked before it was begun', async (t) => {
  const clock = new FakeClock();
  const made: PromiseWithResolvers<string>[] = [];
  const page = new PacedPage(() => {
    const next = Promise.withResolvers<string>();
    made.push(next);
    return next.promise;
  }, clock);
  const first = page.text();
  await turn();
  t.is(made.length, 1);
  // A page that was begun before their request does not serve them.
  const [second, third] = [page.text(), page.text()];
  made[0]?.resolve('one');
  t.is(await first, 'one');
  await clock.advance(PAGE_INTERVAL_MS - 1);
  t.is(made.length, 1);
  await clock.advance(1);
  t.is(made.length, 2);
  made[1]?.reject(new Error('broken'));
  await t.throwsAsync(second, { message: 'broken' });
  await t.throwsAsync(third, { message: 'broken' });
  await clock.advance(PAGE_INTERVAL_MS);
  const last = page.text();
  await turn();
  made[2]?.resolve('three');
  t.is(await last, 'three');
});
