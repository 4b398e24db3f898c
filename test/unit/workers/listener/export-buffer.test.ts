import test from 'ava';
import { accessFields } from '../../../../lib/log/access-log.ts';
import { accessFacts } from '../../../../workers/listener/telemetry/connection-facts.ts';
import { ExportBuffer } from '../../../../workers/listener/telemetry/export-buffer.ts';
import type { EndedConnection } from '../../../../workers/listener/telemetry/export-buffer.ts';
import { MAX_EXPORT_RECORDS } from '../../../../workers/listener/limits.ts';
import { outboundFacts } from '../../../support/pod-policy.ts';
import { service } from '../../../support/workloads.ts';

const facts = outboundFacts({ trace: { traceId: `80${'0'.repeat(30)}`, spanId: 'cd'.repeat(8) } });

const end = { bytesSent: 1, bytesReceived: 2, durationMs: 30, error: null, flag: '-' } as const;
const line = accessFields(accessFacts(facts), end);

function ended(changed: Partial<EndedConnection> = {}): EndedConnection {
  const steps = { understoodMs: 1, admittedMs: null, connectedMs: 2, firstByteMs: null };
  return { facts, end, openedAtMs: 1_000, steps, tunnel: 'a>b', ...changed };
}

test('a connection is one record for its line and its span', (t) => {
  const buffer = new ExportBuffer({ logs: true, traceShare: 1 });
  buffer.ended(ended(), line);
  const { records, dropped } = buffer.take();
  t.deepEqual(dropped, { logs: 0, traces: 0 });
  t.is(records.length, 1);
  t.like(records[0], { severity: 'info', endedAtMs: 1_030, log: true });
  t.deepEqual(records[0]?.fields, line);
  t.like(records[0]?.span, {
    name: `${service().hostname}:80`,
    trace: facts.trace,
    tunnel: 'a>b',
    responseFlag: '-',
  });
  t.deepEqual(records[0]?.span?.steps, [
    ['understood', 1],
    ['connected', 2],
  ]);
  t.is(buffer.take().records.length, 0);
});

test('what the rules of the access log keep back is no line, and may be a span', (t) => {
  const buffer = new ExportBuffer({ logs: true, traceShare: 1 });
  buffer.ended(ended(), null);
  const [record] = buffer.take().records;
  t.is(record?.log, false);
  t.deepEqual(record?.fields, line, 'a span says what the line would');
  const lines = new ExportBuffer({ logs: true, traceShare: null });
  lines.ended(ended(), null);
  t.deepEqual(lines.take().records, []);
});

test('both ends of a tunnel sample the same traces', (t) => {
  const shares: (readonly [share: number, sampled: boolean])[] = [
    [0.4, false],
    [0.6, true],
  ];
  for (const [traceShare, sampled] of shares) {
    for (const direction of ['inbound', 'outbound'] as const) {
      const buffer = new ExportBuffer({ logs: false, traceShare });
      buffer.ended(ended({ facts: { ...facts, direction } }), line);
      t.is(buffer.take().records.length, sampled ? 1 : 0);
    }
  }
});

test('an early denial is a line without a span', (t) => {
  const buffer = new ExportBuffer({ logs: true, traceShare: 1 });
  buffer.denied({ scope: 'access', error: 'x' }, 5);
  t.like(buffer.take().records, [{ severity: 'warn', endedAtMs: 5, log: true, span: null }]);
  const spans = new ExportBuffer({ logs: false, traceShare: 1 });
  spans.denied({ scope: 'access', error: 'x' }, 5);
  t.deepEqual(spans.take().records, []);
});

test('at the bound connections are counted instead of kept', (t) => {
  const buffer = new ExportBuffer({ logs: true, traceShare: 1 });
  for (let index = 0; index < MAX_EXPORT_RECORDS + 2; index += 1) buffer.ended(ended(), line);
  buffer.ended(ended(), null);
  buffer.denied(line, 5);
  const { records, dropped } = buffer.take();
  t.is(records.length, MAX_EXPORT_RECORDS);
  t.deepEqual(dropped, { logs: 3, traces: 3 });
  t.deepEqual(buffer.take().dropped, { logs: 0, traces: 0 });
});
