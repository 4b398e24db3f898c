import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import { MeshError } from '../../../../lib/errors/mesh-error.ts';
import { createLogger } from '../../../../lib/log/logger.ts';
import type { Workload } from '../../../../lib/state/model.ts';
import { decodeAddress, encodeWorkload } from '../../../../lib/xds/resources/address.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { packRows } from '../../../../services/node-proxy/state-thread/packed-rows.ts';
import type { StateTable } from '../../../../services/node-proxy/state-thread/protocol.ts';
import { StateEngine } from '../../../../services/node-proxy/state-thread/state-engine.ts';
import type { Connection } from '../../../../workers/listener/telemetry/connection.ts';
import type { StateRequest } from '../../../../workers/listener/protocol/state.ts';
import { StateClient } from '../../../../workers/listener/state-client.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import {
  authorizationFixture,
  matchFixture,
  workloadFixture,
} from '../../../support/model-fixtures.ts';
import { inboundConnection, podPolicy } from '../../../support/pod-policy.ts';
import { until } from '../../../support/until.ts';

const pod = { uid: 'pod-1', name: 'web-1', namespace: 'demo', serviceAccount: 'web' };
const { uid } = workloadFixture();
const PORT = 80;

const onPort = (action: 'ALLOW' | 'DENY', port: number) =>
  encodeAuthorization(
    authorizationFixture({
      name: 'deny',
      action,
      rules: [{ clauses: [{ matches: [matchFixture({ destinationPorts: [port] })] }] }],
    }),
  );

/** Makes a pod's policies behind the state thread's own engine, as in a process. */
async function setUp(t: ExecutionContext) {
  const lines: Record<string, unknown>[] = [];
  const log = createLogger(
    { actor: 'node-proxy', level: 'info' },
    { write: (line) => lines.push(JSON.parse(line) as Record<string, unknown>) },
  );
  const engine = new StateEngine(
    {
      node: 'node-1',
      dedicatedTo: null,
      logLevel: 'silent',
      logFormat: 'json',
      policyUnknownReference: 'deny',
    },
    {
      clock: systemClock,
      log: createLogger({ actor: 'test', level: 'silent' }),
      decodeAddress,
      decodeAuthorization,
      identitiesChanged: () => {},
      want: () => undefined,
    },
  );
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  engine.connect(0, (message) => port1.postMessage(message));
  port1.on('message', (message: StateRequest) =>
    engine.request(0, message, (answer) => port1.postMessage(answer)),
  );
  for (const table of ['authorizations', 'rejections', 'addresses'] as const) {
    await engine.feed(table, { kind: 'reset' });
    await engine.feed(table, { kind: 'synced' });
  }
  const change = (table: StateTable, key: string, value: Uint8Array | null) =>
    engine.feed(table, { kind: 'changes', rows: packRows([{ key, value }]) });
  const clock = new FakeClock();
  const state = new StateClient(port2, clock);
  state.watch(pod);
  const connections: Connection[] = [];
  const policy = podPolicy(t, { pod, connections, state, log });
  const isKnown = (): boolean => (state.local(pod.uid)?.workload ?? null) !== null;
  return {
    clock,
    lines,
    policy,
    connections,
    setPolicy: (value: Uint8Array | null) => change('authorizations', 'demo/deny', value),
    /** Changes the workload; resolves when the thread knows the change. */
    async setWorkload(fields: Partial<Workload> | null): Promise<void> {
      const value = fields === null ? null : encodeWorkload(workloadFixture(fields));
      await change('addresses', uid, value);
      await until(() => isKnown() === (fields !== null), { what: 'the word of the workload' });
    },
    said: (message: string) => lines.filter((line) => line['message'] === message),
  };
}

/** Makes a connection and adds it to the live ones. */
function connect(live: Connection[]) {
  const log = createLogger({ actor: 'test', level: 'off' });
  const made = inboundConnection(workloadFixture(), PORT, log);
  live.push(made.connection);
  return made;
}

// spec: policy.md §7
test('live connections outlast the time in which the mesh does not know their workload', async (t) => {
  const mesh = await setUp(t);
  await mesh.setPolicy(onPort('ALLOW', PORT));
  await mesh.setWorkload({});
  const { connection, facts } = connect(mesh.connections);
  await mesh.policy.admit(connection, facts);

  await mesh.setWorkload(null);
  t.is(connection.cutBy, null);
  t.is(mesh.said('policy.workload-unknown').length, 1);
  t.like(mesh.said('policy.workload-unknown')[0], {
    level: 'warn',
    podUid: pod.uid,
    connections: 1,
  });
  t.false(mesh.lines.some(({ level }) => level === 'error'));
  await mesh.setWorkload({});
  t.is(connection.cutBy, null);
  t.is(mesh.said('policy.workload-known').length, 1);
  await mesh.setWorkload(null);
  t.is(mesh.said('policy.workload-unknown').length, 2, 'once each time');
});

// spec: policy.md §7
test('a policy that came meanwhile cuts as soon as the workload is known again', async (t) => {
  const mesh = await setUp(t);
  await mesh.setWorkload({});
  const { connection, facts } = connect(mesh.connections);
  await mesh.policy.admit(connection, facts);
  await mesh.setWorkload(null);
  await mesh.setPolicy(onPort('DENY', PORT));
  t.is(connection.cutBy, null);
  await mesh.setWorkload({});
  await until(() => connection.cutBy !== null, { what: 'the cut' });
  t.like(connection.cutBy, { code: 'POLICY_DENIED', detail: { policy: 'demo/deny' } });
});

test('a reference that nobody knows has its five seconds also when it comes back with the workload', async (t) => {
  const mesh = await setUp(t);
  await mesh.setWorkload({});
  const { connection, facts } = connect(mesh.connections);
  await mesh.policy.admit(connection, facts);
  await mesh.setWorkload(null);
  await mesh.setWorkload({ authorizationPolicies: ['demo/missing'] });
  t.is(connection.cutBy, null);
});

test('a connection that is being admitted waits for its workload, and is judged by what binds it then', async (t) => {
  const mesh = await setUp(t);
  await mesh.setWorkload({});
  await mesh.setWorkload(null);
  const first = connect(mesh.connections);
  const admitted = mesh.policy.admit(first.connection, first.facts);
  await mesh.setWorkload({});
  await t.notThrowsAsync(admitted);

  await mesh.setWorkload(null);
  const second = connect(mesh.connections);
  const waiting = mesh.policy.admit(second.connection, second.facts);
  await mesh.setPolicy(onPort('DENY', PORT));
  await mesh.setWorkload({});
  const denied = await t.throwsAsync(waiting, { instanceOf: MeshError });
  t.is(denied.code, 'POLICY_DENIED');

  await mesh.setWorkload(null);
  const third = connect(mesh.connections);
  const refused = mesh.policy.admit(third.connection, third.facts);
  await mesh.clock.advance(60_000);
  const unknown = await t.throwsAsync(refused, { instanceOf: MeshError });
  t.is(unknown.code, 'ROUTE_UNKNOWN_WORKLOAD', 'which clients try again, unlike a denial');
});

test('a workload that goes while its policies are waited for admits nothing', async (t) => {
  const mesh = await setUp(t);
  await mesh.setWorkload({ authorizationPolicies: ['demo/missing'] });
  const { connection, facts } = connect(mesh.connections);
  const admitted = mesh.policy.admit(connection, facts);
  await mesh.setWorkload(null);
  await mesh.clock.advance(60_000);
  const error = await t.throwsAsync(admitted, { instanceOf: MeshError });
  t.is(error.code, 'ROUTE_UNKNOWN_WORKLOAD');
});
