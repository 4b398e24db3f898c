import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { AccessLog } from '../../../../lib/log/access-log.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import { plainLine } from '../../../../lib/log/plain-format.ts';
import { trafficKit } from '../../../support/series.ts';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import type { Authorization } from '../../../../lib/policy/model.ts';
import { Connection } from '../../../../workers/listener/telemetry/connection.ts';
import { PodPolicy } from '../../../../workers/listener/policy.ts';
import { StateClient } from '../../../../workers/listener/state-client.ts';
import { ThreadMetrics } from '../../../../workers/listener/telemetry/thread-metrics.ts';
import { authorizationFixture, matchFixture } from '../../../support/model-fixtures.ts';
import { until } from '../../../support/until.ts';
import { workload } from '../../../support/workloads.ts';

const pod = { uid: 'u', name: 'web', namespace: 'demo', serviceAccount: 'web' };
const TRACE = { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8) };
const end = { ip: '10.0.0.1', port: 80 };

const rule = (port: number) => [
  { clauses: [{ matches: [matchFixture({ destinationPorts: [port] })] }] },
];

/** Admits one connection to port 80 under the policies; returns its decision lines and access lines. */
async function admit(
  t: ExecutionContext,
  policies: readonly Partial<Authorization>[],
  options: { readonly level?: string; readonly infoLogging?: boolean } = {},
) {
  const lines: string[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level: options.level ?? 'debug' },
    { write: (line) => lines.push(line) },
  );
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const state = new StateClient(port2, systemClock);
  state.watch(pod);
  const named = policies.map((parts) => {
    const whole = authorizationFixture(parts);
    return { key: `demo/${whole.name}`, policy: whole };
  });
  port1.postMessage({ type: 'program', program: compileProgram('set', named) });
  const effective = { setId: 'set', unknown: [], pending: false, denyAll: null };
  port1.postMessage({
    type: 'local',
    uid: pod.uid,
    pod: { workload: workload(), services: [], policy: effective },
  });
  await until(() => state.local(pod.uid) !== null, { what: 'the pod' });
  const metrics = new ThreadMetrics(0);
  const traffic = trafficKit();
  const connections: Connection[] = [];
  const policy = new PodPolicy({
    pod,
    connections,
    state,
    log,
    metrics,
    unknownReference: 'deny',
    infoLogging: options.infoLogging ?? false,
  });
  t.teardown(() => policy.close());
  const connection = new Connection(
    {
      direction: 'inbound',
      protocol: 'HBONE',
      source: end,
      destination: end,
      actualDestination: end,
      hboneAddress: '10.0.0.2:80',
      sourceWorkload: null,
      sourceBaggage: null,
      destinationWorkload: workload(),
      destinationService: null,
      sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
      trace: TRACE,
    },
    { access: new AccessLog(log), traffic: traffic.metrics, metrics, clock: systemClock },
  );
  connections.push(connection);
  const facts = {
    sourceIp: end.ip,
    sourceIdentity: 'spiffe://cluster.local/ns/demo/sa/client',
    destinationIp: end.ip,
    destinationPort: end.port,
  };
  const error = await policy.admit(connection, facts).then(
    () => null,
    (refusal: unknown) => refusal,
  );
  connection.finish(error as Parameters<Connection['finish']>[0]);
  const parsed = lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  return {
    lines,
    decisions: parsed.filter((line) => line['message'] === 'policy.decision'),
    access: parsed.find((line) => line['message'] === 'connection complete'),
    counted: (name: string, flag: string) =>
      traffic
        .samples()
        .filter((sample) => sample.name === name)
        .filter(({ labels }) => new Map(labels).get('response_flags') === flag)
        .reduce((sum, { value }) => sum + value, 0),
  };
}

// spec: policy.md §6
test('every kind of decision is logged once, with its policy', async (t) => {
  const cases: readonly (readonly [readonly Partial<Authorization>[], object])[] = [
    [[], { policy: null, reason: 'no-policies' }],
    [
      [{ name: 'deny', action: 'DENY', rules: rule(80) }],
      { policy: 'demo/deny', rule: 0, reason: 'denied' },
    ],
    [
      [{ name: 'allow', action: 'ALLOW', rules: [...rule(81), ...rule(80)] }],
      { policy: 'demo/allow', rule: 1, reason: 'allowed' },
    ],
    [
      [{ name: 'allow', action: 'ALLOW', rules: rule(81) }],
      { policy: null, reason: 'not-allowed' },
    ],
    [
      [{ name: 'dry', action: 'DENY', rules: rule(80), dryRun: true }],
      { policy: null, reason: 'no-policies', dryRun: ['demo/dry'] },
    ],
  ];
  for (const [policies, expected] of cases) {
    const { decisions } = await admit(t, policies);
    t.is(decisions.length, 1);
    t.like(decisions[0], { level: 'debug', scope: 'policy', ...expected });
  }
});

// spec: policy.md §6
test('decisions are at debug, or at info where the setting says so', async (t) => {
  t.is((await admit(t, [], { level: 'info' })).decisions.length, 0);
  t.is((await admit(t, [], { level: 'info', infoLogging: true })).decisions[0]?.['level'], 'info');
  t.is((await admit(t, [], { level: 'info,policy=debug' })).decisions.length, 1);
});

// spec: observability.md §3.2
test('a decision is within the spans of its pod and its connection', async (t) => {
  const { decisions, lines } = await admit(t, []);
  t.like(decisions[0], {
    proxy: { wl: 'demo/web' },
    inbound: { id: TRACE.traceId, peer: '10.0.0.1' },
  });
  const plain = lines.map(plainLine).find((line) => line.includes('policy.decision'));
  t.regex(plain ?? '', /\tpolicy:proxy\{wl=demo\/web\}:inbound\{id=(ab){16} peer=10\.0\.0\.1\}\t/);
});

// spec: policy.md §6
test('a refusal is counted once, and its access line names policy and rule', async (t) => {
  const { access, counted } = await admit(t, [
    { name: 'deny', action: 'DENY', rules: [...rule(81), ...rule(80)] },
  ]);
  t.like(access, { level: 'error', policy: 'demo/deny', rule: 1 });
  t.regex(String(access?.['error']), /demo\/deny/);
  t.is(counted('istio_tcp_connections_opened_total', '-'), 1);
  t.is(counted('istio_tcp_connections_closed_total', 'DENY'), 1);
  t.is(counted('istio_tcp_connections_failed_total', 'DENY'), 1);
  const nothing = await admit(t, [{ name: 'allow', action: 'ALLOW', rules: rule(81) }]);
  t.regex(String(nothing.access?.['error']), /ALLOW policies apply and none matched/);
});
