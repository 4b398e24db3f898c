import test from 'ava';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { AccessLog } from '../../../../lib/log/access-log.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { trafficKit } from '../../../support/series.ts';
import type { Copy, CopyCounts } from '../../../../lib/net/bidi-copy.ts';
import { Connection } from '../../../../workers/listener/telemetry/connection.ts';
import type { ConnectionFacts } from '../../../../workers/listener/telemetry/connection.ts';
import { RECENT_OF_POD } from '../../../../workers/listener/limits.ts';
import { responseFlag } from '../../../../workers/listener/telemetry/response-flag.ts';
import {
  RecentConnections,
  RecentOfPod,
} from '../../../../workers/listener/telemetry/recent-connections.ts';
import { ThreadMetrics } from '../../../../workers/listener/telemetry/thread-metrics.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { outboundFacts } from '../../../support/pod-policy.ts';
import { workload } from '../../../support/workloads.ts';

const trace = { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8) };

const facts = outboundFacts({
  destinationWorkload: workload({ name: 'web-1', workloadName: 'web' }),
  sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
  trace,
});

const NO_BUDGET = {
  connections: 0,
  handshakes: 0,
  waitingHandshakes: 0,
  heldBytes: 0,
  pressure: { now: 0, total: 0 },
  busiestPod: 0,
};

function sinks() {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger(
    { actor: 'test', level: 'debug' },
    { write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const clock = new FakeClock();
  const traffic = trafficKit();
  const metrics = new ThreadMetrics(0);
  const value = (name: string, labels: Record<string, string> = {}): number =>
    [
      ...traffic.samples(),
      ...metrics.samples({
        pods: 0,
        cachedAnswers: 0,
        heldEndpoints: 0,
        pools: [],
        budget: NO_BUDGET,
        splices: 0,
        suppressedLines: { filter: 0, sample: 0, rate: 0, denials: 0 },
        droppedLines: 0,
      }),
    ]
      .filter((sample) => {
        const own = new Map(sample.labels);
        return (
          sample.name === name &&
          Object.entries(labels).every(([label, text]) => own.get(label) === text)
        );
      })
      .reduce((sum, sample) => sum + sample.value, 0);
  const all = { access: new AccessLog(log), traffic: traffic.metrics, metrics, clock };
  return { lines, clock, value, all };
}

function copyOf(counts: CopyCounts): Copy {
  return { counts, done: Promise.resolve({ error: null }), abort: () => undefined };
}

// spec: observability.md §2.2
test('a connection is opened when it is understood, and closed and failed once', (t) => {
  const { all, value, lines } = sinks();
  const connection = new Connection(facts, all);
  t.is(value('istio_tcp_connections_opened_total', { response_flags: '-' }), 1);
  t.is(lines[0]?.['message'], 'connection opened');
  connection.finish(new MeshError('UPSTREAM_CONNECT', 'refused'));
  connection.finish(null);
  t.is(value('istio_tcp_connections_closed_total', { response_flags: 'CONNECT' }), 1);
  t.is(value('istio_tcp_connections_failed_total', { response_flags: 'CONNECT' }), 1);
  t.is(lines.length, 2);
});

// spec: observability.md §2.2
test('a connection through a gateway is opened when both tunnels stand, as what lies behind', (t) => {
  const { all, value } = sinks();
  const double: ConnectionFacts = { ...facts, protocol: 'DOUBLEHBONE' };
  const connection = new Connection(double, all);
  t.is(value('istio_tcp_connections_opened_total'), 0);
  const identity = 'spiffe://cluster.local/ns/far/sa/api';
  connection.retarget({
    ...double,
    destinationIdentity: identity,
    destinationBaggage: {
      clusterId: 'far',
      namespace: 'far',
      workloadName: 'api',
      canonicalName: 'api',
      canonicalRevision: 'v1',
      region: 'r2',
      zone: null,
    },
  });
  connection.carry(copyOf({ fromA: 3, fromB: 4 }));
  const labels = {
    destination_workload: 'api',
    destination_cluster: 'far',
    destination_principal: identity,
    destination_region: 'r2',
    destination_zone: 'unknown',
    connection_security_policy: 'mutual_tls',
  };
  t.is(value('istio_tcp_connections_opened_total', labels), 1);
  connection.finish(null);
  t.is(value('istio_tcp_connections_closed_total', labels), 1);
  t.is(value('istio_tcp_received_bytes_total', labels), 3);
  t.is(value('istio_tcp_connections_opened_total'), 1);
});

// spec: observability.md §2.2
test('a connection through a gateway that fails is opened then, under the gateway', (t) => {
  const { all, value } = sinks();
  const connection = new Connection({ ...facts, protocol: 'DOUBLEHBONE' }, all);
  connection.finish(new MeshError('TLS_PEER_IDENTITY', 'not the gateway'));
  t.is(value('istio_tcp_connections_opened_total', { destination_workload: 'web' }), 1);
  t.is(value('istio_tcp_connections_failed_total', { response_flags: 'TLS_FAILURE' }), 1);
});

// spec: observability.md §2.1
test('a drained connection carries no flag', (t) => {
  const { all, value, lines } = sinks();
  const connection = new Connection(facts, all);
  connection.drain();
  connection.finish(connection.cutBy);
  t.is(value('istio_tcp_connections_closed_total', { response_flags: '-' }), 1);
  t.is(value('istio_tcp_connections_failed_total'), 0);
  t.false('error' in (lines.at(-1) ?? {}));
});

// spec: observability.md §3.1
test('bytes are told from the point of view of the pod, counted from the client', (t) => {
  for (const direction of ['outbound', 'inbound'] as const) {
    const { all, value, lines } = sinks();
    const connection = new Connection({ ...facts, direction }, all);
    connection.carry(copyOf({ fromA: 10, fromB: 20 }));
    connection.finish(null);
    t.is(value('istio_tcp_received_bytes_total'), 10);
    t.is(value('istio_tcp_sent_bytes_total'), 20);
    const line = lines.at(-1) ?? {};
    t.is(line['bytes_sent'], direction === 'outbound' ? 10 : 20);
    t.is(line['bytes_recv'], direction === 'outbound' ? 20 : 10);
    t.is(line['trace_id'], trace.traceId);
  }
});

test('a record tells each step, the tunnel and the policy, and stays after the end', async (t) => {
  const { all, clock, value } = sinks();
  const recent = new RecentConnections(2);
  const startedMs = clock.monotonic();
  await clock.advance(2);
  const connection = new Connection({ ...facts, startedMs }, all);
  await clock.advance(3);
  connection.admitted({ allowed: true, policy: 'demo/allow', rule: 1, reason: 'allowed' });
  await clock.advance(5);
  const counts: CopyCounts = { fromA: 0, fromB: 0 };
  connection.carry(copyOf(counts));
  counts.fromB = 7;
  counts.firstFromBMs = startedMs + 20;
  await clock.advance(30);
  connection.finish(null);
  recent.add(connection, 'u');
  counts.fromB = 99;
  const [record] = recent.records();
  t.deepEqual(record?.steps, {
    understoodMs: 2,
    admittedMs: 5,
    connectedMs: 10,
    firstByteMs: 20,
  });
  t.is(record?.bytesReceived, 7);
  t.like(record?.end, { durationMs: 40, flag: '-', error: null });
  t.is(record?.policy?.policy, 'demo/allow');
  t.is(record?.traceId, trace.traceId);
  t.is(value('weft_first_byte_duration_seconds_count', { reporter: 'source' }), 1);
  t.is(value('weft_first_byte_duration_seconds_bucket', { le: '0.025' }), 1);
  t.is(value('weft_first_byte_duration_seconds_bucket', { le: '0.01' }), 0);
});

test('only the last ended connections are kept', (t) => {
  const { all } = sinks();
  const recent = new RecentConnections(2);
  for (const port of [1, 2, 3]) {
    const connection = new Connection({ ...facts, source: { ip: '10.0.0.1', port } }, all);
    connection.finish(null);
    recent.add(connection, 'u');
  }
  const sources = [...recent.records()].map(({ source }) => source);
  t.deepEqual(sources.sort(), ['10.0.0.1:2', '10.0.0.1:3']);
});

test('a busy pod has some of its connections kept, and all that failed or were looked at', async (t) => {
  const { all, clock } = sinks();
  const recent = new RecentConnections(1_000);
  const ofPod = new RecentOfPod(recent, 'u', clock);
  const end = (count: number, of: Partial<typeof trace> = {}): void => {
    for (let index = 0; index < count; index += 1) {
      const connection = new Connection({ ...facts, trace: { ...trace, ...of } }, all);
      connection.finish(null);
      ofPod.add(connection);
    }
  };
  const kept = (): number => [...recent.records()].length;
  const { burst, perSecond } = RECENT_OF_POD;
  end(100);
  t.is(kept(), burst);
  // Both ends of a connection choose it by its id.
  end(20, { traceId: 'a0'.repeat(16) });
  t.is(kept(), burst + 20);
  end(100, { traceId: 'a0'.repeat(16) });
  t.is(kept(), 2 * burst);
  const failed = new Connection(facts, all);
  failed.finish(new MeshError('UPSTREAM_CONNECT', 'refused'));
  ofPod.add(failed);
  const traced = new Connection(facts, all);
  traced.record('u', true);
  traced.finish(null);
  ofPod.add(traced);
  t.is(kept(), 2 * burst + 2);
  await clock.advance(50);
  end(100);
  t.is(kept(), 2 * burst + 2 + perSecond / 20);
});

// spec: observability.md §2.1
test('every failure has the flag that upstream gives it', (t) => {
  const flag = (...of: ConstructorParameters<typeof MeshError>): string =>
    responseFlag(new MeshError(...of));
  const coded = (code: string): Error => Object.assign(new Error(code), { code });
  t.is(responseFlag(null), '-');
  t.is(flag('POLICY_DENIED', 'x'), 'DENY');
  t.is(flag('UPSTREAM_CONNECT', 'x'), 'CONNECT');
  t.is(flag('UPSTREAM_TIMEOUT', 'x'), 'CONNECT');
  t.is(flag('TUNNEL_REFUSED', 'status 401', { detail: { status: 401 } }), 'CONNECT');
  t.is(flag('TUNNEL_RESET', 'x'), 'CONNECT');
  t.is(flag('UPSTREAM_NETWORK_POLICY', 'x'), 'NETWORK_POLICY');
  t.is(flag('TUNNEL_PROTOCOL', 'x'), 'H2_HANDSHAKE_FAILURE');
  t.is(flag('TUNNEL_CLOSED', 'x'), 'H2_HANDSHAKE_FAILURE');
  t.is(flag('IDENTITY_UNAVAILABLE', 'x'), 'IDENTITY_ERROR');
  t.is(flag('IDENTITY_EXPIRED', 'x'), 'IDENTITY_ERROR');
  t.is(flag('TLS_PEER_IDENTITY', 'x'), 'TLS_FAILURE');
  t.is(flag('TLS_HANDSHAKE', 'x', { cause: coded('CERT_HAS_EXPIRED') }), 'TLS_FAILURE');
  t.is(flag('TLS_HANDSHAKE', 'x', { cause: coded('ERR_SSL_WRONG_VERSION_NUMBER') }), 'TLS_FAILURE');
  t.is(flag('TLS_HANDSHAKE', 'x', { cause: coded('ECONNRESET') }), 'CONNECT');
  t.is(flag('TLS_HANDSHAKE', 'x', { cause: new Error('the peer closed') }), 'CONNECT');
  // Errors from outside the connection still mean a failed connection.
  t.is(flag('STATE_UNAVAILABLE', 'x'), 'CONNECT');
});
