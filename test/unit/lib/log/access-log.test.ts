import test from 'ava';
import type { AccessGate } from '../../../../lib/log/access-gate.ts';
import { AccessLog } from '../../../../lib/log/access-log.ts';
import type { AccessFacts } from '../../../../lib/log/access-log.ts';
import { createLogger } from '../../../../lib/log/logger.ts';

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
test('opened lines are for debugging', (t) => {
  const quiet = capture();
  quiet.access.opened(facts);
  t.is(quiet.lines.length, 0);
  const loud = capture('debug');
  loud.access.opened(facts);
  t.is(loud.lines[0]?.['message'], 'connection opened');
});
