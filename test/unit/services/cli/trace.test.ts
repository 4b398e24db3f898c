import test from 'ava';
import type { PodLine } from '../../../../services/local-mesh/supervisor-api.ts';
import { findConnection } from '../../../../services/cli/trace/find.ts';
import type { TraceQuery } from '../../../../services/cli/trace/find.ts';
import { traceLines, traceResult } from '../../../../services/cli/trace/render.ts';
import type { ConnectionRecord } from '../../../../workers/listener/protocol/connections.ts';
import { connectionRecord } from '../../../support/records.ts';

const pod = (name: string, ip: string): PodLine => ({
  uid: `uid-${name}`,
  namespace: 'demo',
  name,
  node: 'node-1',
  ip,
  ips: [ip, 'fd00::7'],
  netns: '/run/netns/x',
  serviceAccount: name,
  phase: 'Running',
  ambient: true,
});

const query: TraceQuery = {
  from: pod('client', '10.0.0.1'),
  to: { namespace: 'demo', name: 'api', port: 80 },
  toPod: null,
  client: null,
};

const outbound = (parts: Partial<ConnectionRecord> = {}): ConnectionRecord =>
  connectionRecord({
    podUid: 'uid-client',
    protocol: 'HBONE',
    destination: '10.96.0.1:80',
    destinationService: 'api.demo.svc.cluster.local',
    traceId: 'aa',
    ...parts,
  });

const inbound = connectionRecord({
  podUid: 'uid-api',
  direction: 'inbound',
  protocol: 'HBONE',
  traceId: 'aa',
  policy: { allowed: false, policy: 'demo/deny', rule: 2, reason: 'denied' },
});

const ENDED = { durationMs: 12, flag: 'DENY', error: 'refused', policy: null, rule: null } as const;

const find = (changes: Partial<TraceQuery>, ...records: ConnectionRecord[]) =>
  findConnection(
    { ...query, ...changes },
    records.map((record) => ({ node: 'node-1', record })),
  );

test('the newest live connection is found, and its other end by the trace', (t) => {
  const found = find(
    {},
    outbound({ openedAtMs: 9, traceId: 'bb', end: ENDED }),
    outbound({ openedAtMs: 5 }),
    outbound({ openedAtMs: 3, traceId: 'cc' }),
    inbound,
  );
  t.is(found?.source.record.openedAtMs, 5);
  t.is(found?.destination?.record.podUid, 'uid-api');
  t.is(find({}, outbound({ end: ENDED }))?.destination, null);
});

test('among ended connections one whose other end is known comes first', (t) => {
  const half = outbound({ openedAtMs: 9, traceId: 'bb', end: ENDED });
  const whole = outbound({ openedAtMs: 5, end: ENDED });
  t.is(find({}, half, whole, inbound)?.source.record.openedAtMs, 5);
  t.is(find({}, half, whole)?.source.record.openedAtMs, 9);
});

test('connections of others, to others, or by another socket are passed over', (t) => {
  t.is(find({}), null);
  t.is(find({}, inbound), null);
  t.is(find({}, outbound({ podUid: 'uid-other' })), null);
  t.is(find({}, outbound({ destination: '10.96.0.1:8080' })), null);
  t.is(find({}, outbound({ destinationService: 'apis.demo.svc.cluster.local' })), null);
  t.is(find({ client: '10.0.0.1:1' }, outbound()), null);
  t.not(find({ client: '10.0.0.1:40000' }, outbound()), null);
});

test('a pod is found by either of its addresses, an entry by its host', (t) => {
  const toPod = pod('api-1', '10.0.0.2');
  t.not(find({ toPod }, outbound({ destination: '10.0.0.2:80' })), null);
  t.not(find({ toPod }, outbound({ destination: '[fd00::7]:80' })), null);
  t.is(find({ toPod }, outbound()), null);
  const to = { namespace: 'demo', name: 'db.example.com', port: 80 };
  t.not(find({ to }, outbound({ destinationService: 'db.example.com' })), null);
});

test('two pods of one process have no tunnel between them, which is said', (t) => {
  const found = find({}, outbound(), inbound);
  if (found === null) t.fail('it is found');
  else
    t.true(
      traceLines(traceResult('a', 'b', found)).includes('no tunnel: one process serves both ends'),
    );
});

test('a refusal is shown with the policy and rule, at the end that refused', (t) => {
  const found = find(
    {},
    outbound({
      route: { kind: 'hbone', via: 'waypoint', reason: 'because', attempts: 2 },
      tunnel: {
        session: 'a>b',
        peerIdentity: 'spiffe://td/ns/demo/sa/api',
        openedAtMs: 0,
        connectMs: 1,
        handshakeMs: 2.25,
        reused: true,
      },
      accessLine: { scope: 'access', error: 'refused' },
    }),
    { ...inbound, end: ENDED },
  );
  if (found === null) {
    t.fail('it is found');
    return;
  }
  const text = traceLines(traceResult('demo/client', 'demo/api:80', found)).join('\n');
  for (const part of [
    'demo/client to demo/api:80  trace aa',
    'decision:    hbone through a waypoint, attempt 2: because',
    'made:        1970-01-01T00:00:00.000Z, for an earlier connection',
    'handshake:   2.3 ms',
    'policy:      denied by demo/deny, rule 2 (denied)',
    'state:       failed (DENY) after 12.0 ms: refused',
    'state:       open',
    'source line: {"scope":"access","error":"refused"}',
  ]) {
    t.true(text.includes(part), part);
  }
});
