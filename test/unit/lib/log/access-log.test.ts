import test from 'ava';
import { AccessGate, OPEN_ACCESS } from '../../../../lib/log/access-gate.ts';
import { AccessLog } from '../../../../lib/log/access-log.ts';
import type { AccessFacts } from '../../../../lib/log/access-log.ts';
import { DENIAL_LINES_BURST, DENIAL_LINES_PER_SECOND } from '../../../../lib/log/limits.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

function capture(
  level = 'info',
  gate?: AccessGate,
): { access: AccessLog; lines: Record<string, unknown>[] } {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level },
    { write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  return { access: new AccessLog(log, gate), lines };
}

const facts: AccessFacts = {
  source: {
    address: '10.0.0.1:40000',
    workload: 'client',
    namespace: 'demo',
    identity: 'spiffe://cluster.local/ns/demo/sa/client',
    cluster: 'Kubernetes',
  },
  destination: {
    address: '10.0.0.2:15008',
    workload: 'web-1',
    namespace: 'demo',
    identity: 'spiffe://cluster.local/ns/demo/sa/web',
    cluster: 'Kubernetes',
  },
  hboneAddress: '10.0.0.2:8080',
  serviceHostname: 'web.demo.svc.cluster.local',
  direction: 'outbound',
  traceId: null,
};

// spec: observability.md §3.1
test('a complete line has its fields in order', (t) => {
  const { access, lines } = capture();
  access.complete(facts, { bytesSent: 1, bytesReceived: 2, durationMs: 3.4, error: null });
  t.deepEqual(Object.keys(lines[0] ?? {}), [
    'level',
    'time',
    'actor',
    'scope',
    'src.addr',
    'src.workload',
    'src.namespace',
    'src.identity',
    'src.cluster',
    'dst.addr',
    'dst.hbone_addr',
    'dst.service',
    'dst.workload',
    'dst.namespace',
    'dst.identity',
    'dst.cluster',
    'direction',
    'bytes_sent',
    'bytes_recv',
    'duration',
    'message',
  ]);
  t.is(lines[0]?.['scope'], 'access');
  t.is(lines[0]?.['duration'], '3ms');
  t.is(lines[0]?.['level'], 'info');
});

// spec: observability.md §3.1
test('what is not known is left out, a failure is an error and names the policy', (t) => {
  const { access, lines } = capture();
  const bare = {
    address: '1.2.3.4:5',
    workload: null,
    namespace: '',
    identity: null,
    cluster: null,
  };
  access.complete(
    { ...facts, source: bare, hboneAddress: null },
    {
      bytesSent: 0,
      bytesReceived: 0,
      durationMs: 0,
      error: 'denied',
      policy: 'demo/deny',
      rule: 0,
    },
  );
  t.false('src.workload' in (lines[0] ?? {}));
  t.is(lines[0]?.['level'], 'error');
  t.is(lines[0]?.['error'], 'denied');
  t.is(lines[0]?.['policy'], 'demo/deny');
  t.is(lines[0]?.['rule'], 0);
});

// spec: observability.md §3.1
test('an early denial is one warning', (t) => {
  const { access, lines } = capture();
  access.failed({ source: 'a', destination: 'b', direction: 'inbound', error: 'x' });
  t.is(lines[0]?.['message'], 'connection failed');
  t.is(lines[0]?.['level'], 'warn');
  const fields = Object.keys(lines[0] ?? {});
  const own = ['src.addr', 'dst.addr', 'direction', 'error'];
  t.deepEqual(fields, ['level', 'time', 'actor', 'scope', ...own, 'message']);
});

test('early denials get only so many lines a second; what is left out is said and counted', async (t) => {
  const clock = new FakeClock();
  const gate = new AccessGate(OPEN_ACCESS, clock);
  const { access, lines } = capture('info', gate);
  const deny = (count: number): number =>
    Array.from({ length: count }, () =>
      access.failed({ source: 'a', destination: 'b', direction: 'inbound', error: 'x' }),
    ).filter((fields) => fields !== null).length;
  t.is(deny(DENIAL_LINES_BURST + 7), DENIAL_LINES_BURST);
  t.is(lines.length, DENIAL_LINES_BURST);
  // Nothing more comes, and it is said all the same.
  await clock.advance(1_000);
  t.like(lines.at(-1), { message: 'access.denials-left-out', level: 'warn', lines: 7 });
  t.is(deny(1_000), DENIAL_LINES_PER_SECOND);
  t.is(deny(1_000), 0);
  await clock.advance(1_000);
  t.like(lines.at(-1), { lines: 2_000 - DENIAL_LINES_PER_SECOND });
  t.is(lines.length, DENIAL_LINES_BURST + DENIAL_LINES_PER_SECOND + 2);
  t.is(gate.suppressed.denials, 2_007 - DENIAL_LINES_PER_SECOND);
  await clock.advance(60_000);
  t.is(lines.length, DENIAL_LINES_BURST + DENIAL_LINES_PER_SECOND + 2);
  // Connections that were understood are told of as ever.
  access.complete(facts, { bytesSent: 0, bytesReceived: 0, durationMs: 0, error: 'denied' });
  t.is(lines.at(-1)?.['message'], 'connection complete');
});

// spec: observability.md §3.1
test('opened lines are for debugging', (t) => {
  const quiet = capture();
  quiet.access.opened(facts);
  t.is(quiet.lines.length, 0);
  const loud = capture('debug');
  loud.access.opened(facts);
  t.is(loud.lines[0]?.['message'], 'connection opened');
});
