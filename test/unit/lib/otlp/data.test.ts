import test from 'ava';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { MetricRegistry } from '../../../../lib/metrics/registry.ts';
import { connectionData } from '../../../../lib/otlp/connection-data.ts';
import { MAX_ATTRIBUTE_CHARS } from '../../../../lib/otlp/limits.ts';
import { metricData } from '../../../../lib/otlp/metric-data.ts';
import type { ConnectionSpan, ExportedConnection } from '../../../../lib/otlp/model.ts';
import { hrTime } from '../../../../lib/otlp/model.ts';

const origin = { resource: resourceFromAttributes({}), scope: { name: 'weft' } };
const trace = { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8) };

const span: ConnectionSpan = {
  startedAtMs: 1_000.5,
  direction: 'outbound',
  trace,
  name: 'web.demo.svc.cluster.local:80',
  protocol: 'HBONE',
  responseFlag: '-',
  tunnel: '10.0.0.1:4000>10.0.0.2:15008',
  steps: [['connected', 2]],
};

function connection(changed: Partial<ExportedConnection> = {}): ExportedConnection {
  return {
    fields: { scope: 'access', 'src.workload': 'client', bytes_sent: 5, trace_id: trace.traceId },
    severity: 'info',
    message: 'connection complete',
    endedAtMs: 3_000,
    log: true,
    span,
    ...changed,
  };
}

test('times keep their fractions', (t) => {
  t.deepEqual(hrTime(1_763_000_000_123.25), [1_763_000_000, 123_250_000]);
  t.deepEqual(hrTime(0), [0, 0]);
});

test('an outbound connection is the root of its trace, under the ids it sends', (t) => {
  const data = connectionData(connection(), origin);
  t.like(data.span?.spanContext(), trace);
  t.is(data.span?.parentSpanContext, undefined);
  t.is(data.span?.kind, 2);
  t.deepEqual(data.span?.startTime, [1, 500_000]);
  t.deepEqual(data.span?.endTime, [3, 0]);
  t.like(data.span?.attributes, {
    'src.workload': 'client',
    bytes_sent: 5,
    'weft.protocol': 'HBONE',
    'weft.tunnel': span.tunnel,
  });
  t.false('scope' in (data.span?.attributes ?? {}));
  t.like(data.log?.spanContext, trace);
  t.like(data.log, { severityText: 'INFO', body: 'connection complete' });
});

test('an inbound connection is the child of what the request named', (t) => {
  const data = connectionData(connection({ span: { ...span, direction: 'inbound' } }), origin);
  const ids = data.span?.spanContext();
  t.is(ids?.traceId, trace.traceId);
  t.not(ids?.spanId, trace.spanId);
  t.regex(ids?.spanId ?? '', /^[0-9a-f]{16}$/);
  t.like(data.span?.parentSpanContext, { ...trace, isRemote: true });
  t.is(data.log?.spanContext?.spanId, ids?.spanId, 'the line leads to its own span');
});

test('a connection without a tunnel has a trace of its own', (t) => {
  const plain = connection({ fields: { scope: 'access' }, span: { ...span, trace: null } });
  const [one, two] = [connectionData(plain, origin), connectionData(plain, origin)];
  t.regex(one.span?.spanContext().traceId ?? '', /^[0-9a-f]{32}$/);
  t.not(one.span?.spanContext().traceId, two.span?.spanContext().traceId);
});

test('ids that are none are replaced, so that no collector refuses the rest for them', (t) => {
  const [traceId, spanId] = ['0'.repeat(32), '0'.repeat(16)];
  for (const bad of [
    { ...trace, traceId },
    { ...trace, spanId },
  ]) {
    const data = connectionData(
      connection({ span: { ...span, direction: 'inbound', trace: bad } }),
      origin,
    );
    t.regex(data.span?.spanContext().traceId ?? '', /^(?!0{32})[0-9a-f]{32}$/);
    t.is(data.span?.parentSpanContext, undefined);
  }
  const line = connectionData(connection({ span: null, fields: { trace_id: traceId } }), origin);
  t.is(line.log?.spanContext, undefined);
});

test('a line without a span names its trace, a failed one its error', (t) => {
  const error = 'x'.repeat(2 * MAX_ATTRIBUTE_CHARS);
  const failed = connection({ span: null, severity: 'error' });
  t.deepEqual(connectionData(failed, origin).log?.spanContext, {
    traceId: trace.traceId,
    spanId: '',
    traceFlags: 0,
  });
  const data = connectionData(connection({ fields: { error }, log: false }), origin);
  t.is(data.log, null);
  t.is(data.span?.status.code, 2);
  t.is(data.span?.status.message?.length, MAX_ATTRIBUTE_CHARS);
  t.is(String(data.span?.attributes['error']).length, MAX_ATTRIBUTE_CHARS);
});

test('families become metrics of the same name, buckets counts between two bounds', async (t) => {
  const registry = new MetricRegistry({ actor: 'test' });
  registry
    .counter('istio_tcp_sent_bytes_total', 'Bytes', ['reporter'])
    .inc({ reporter: 'source' }, 7);
  registry.gauge('weft_depth', 'Depth').set(Infinity);
  registry.gauge('weft_pods', 'Pods').set(3);
  const histogram = registry.histogram('weft_first_byte_seconds', 'Time', [0.1, 1], ['reporter']);
  for (const seconds of [0.05, 0.5, 0.5, 9]) histogram.observe({ reporter: 'source' }, seconds);
  registry.histogram('weft_empty_seconds', 'Never', [1], ['reporter']);
  const data = metricData(await registry.families(), { startMs: 1_000, nowMs: 2_000 });
  t.deepEqual(
    data.map(({ descriptor }) => descriptor.name),
    ['istio_tcp_sent_bytes_total', 'weft_pods', 'weft_first_byte_seconds'],
  );
  t.like(data[0], { isMonotonic: true, dataPointType: 3 });
  t.deepEqual(data[0]?.dataPoints, [
    { startTime: [1, 0], endTime: [2, 0], attributes: { reporter: 'source' }, value: 7 },
  ]);
  t.deepEqual(data[2]?.dataPoints[0]?.attributes, { reporter: 'source' });
  t.deepEqual(data[2]?.dataPoints[0]?.value, {
    buckets: { boundaries: [0.1, 1], counts: [1, 2, 1] },
    count: 4,
    sum: 10.05,
  });
});
