import test from 'ava';
import { compileProgram } from '../../../../lib/policy/compile.ts';
import { PolicyStore } from '../../../../lib/policy/policy-store.ts';
import type { Workload } from '../../../../lib/state/model.ts';
import {
  decodeAddress,
  encodeService,
  encodeWorkload,
} from '../../../../lib/xds/resources/address.ts';
import {
  decodeAuthorization,
  encodeAuthorization,
} from '../../../../lib/xds/resources/authorization.ts';
import { ENDPOINTS_PER_MESSAGE, PROGRAM_WAIT_MS } from '../../../../services/node-proxy/limits.ts';
import { packRows } from '../../../../services/node-proxy/state-thread/packed-rows.ts';
import type { Row } from '../../../../services/node-proxy/state-thread/packed-rows.ts';
import type { StateTable } from '../../../../services/node-proxy/state-thread/protocol.ts';
import { StateEngine } from '../../../../services/node-proxy/state-thread/state-engine.ts';
import type { LookupKey } from '../../../../lib/state/view.ts';
import type { StateResponse } from '../../../../workers/listener/protocol/state.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import {
  authorizationFixture,
  serviceFixture,
  workloadFixture,
} from '../../../support/model-fixtures.ts';

const pod = { uid: 'pod-1', name: 'web-1', namespace: 'demo', serviceAccount: 'web' };
const key = 'demo/web.demo.svc.cluster.local';

function setUp() {
  const clock = new FakeClock();
  const { log, lines } = keptLog('test');
  const told: StateResponse[] = [];
  const identities: (readonly string[])[] = [];
  const engine = new StateEngine(
    {
      node: 'node-1',
      dedicatedTo: null,
      logLevel: 'silent',
      logFormat: 'json',
      policyUnknownReference: 'deny',
    },
    {
      clock,
      log,
      decodeAddress,
      decodeAuthorization,
      identitiesChanged: (all) => identities.push(all),
      want: () => undefined,
    },
  );
  const send = (message: StateResponse): void => void told.push(message);
  engine.connect(0, send);
  return {
    clock,
    engine,
    lines,
    told,
    identities,
    send,
    /** Copies a whole table. */
    async copy(table: StateTable, rows: readonly Row[] = []): Promise<void> {
      await engine.feed(table, { kind: 'reset' });
      await engine.feed(table, { kind: 'entries', rows: packRows(rows) });
      await engine.feed(table, { kind: 'synced' });
    },
    change: (table: StateTable, rows: readonly Row[]) =>
      engine.feed(table, { kind: 'changes', rows: packRows(rows) }),
    locals: () => told.flatMap((message) => (message.type === 'local' ? [message.pod] : [])),
    lookup(keys: readonly LookupKey[]) {
      let answer: StateResponse | null = null;
      engine.request(0, { type: 'lookup', id: 1, keys }, (message) => {
        if (message.type === 'answer') answer = message;
        else told.push(message);
      });
      return answer as StateResponse | null;
    },
  };
}

const workloadRow = (fields: Partial<Workload> = {}): Row => {
  const workload = workloadFixture(fields);
  return { key: workload.uid, value: encodeWorkload(workload) };
};
const serviceRow: Row = { key, value: encodeService(serviceFixture()) };
const policyRow = (fields: Parameters<typeof authorizationFixture>[0] = {}): Row => {
  const policy = authorizationFixture(fields);
  return { key: `${policy.namespace}/${policy.name}`, value: encodeAuthorization(policy) };
};

test('nothing is told or answered before the state is complete', async (t) => {
  const state = setUp();
  state.engine.request(0, { type: 'watch', pod }, state.send);
  await state.copy('addresses', [workloadRow()]);
  await state.copy('authorizations');
  const keys = [{ kind: 'uid' as const, uid: 'nobody' }];
  t.like(state.lookup(keys), { answers: [null] });
  t.deepEqual(state.locals(), []);
  await state.copy('rejections');
  t.true(state.engine.ready);
  t.like(state.lookup(keys), { answers: [{ workloads: [], services: [] }] });
  t.like(state.locals(), [{ workload: { name: 'web-1' }, services: [] }]);
});

test('a watched pod is told of its workload, services and policies, and of every change', async (t) => {
  const state = setUp();
  await state.copy('authorizations');
  await state.copy('rejections');
  await state.copy('addresses', [workloadRow({ services: { [key]: { 80: 8080 } } })]);
  state.engine.request(0, { type: 'watch', pod }, state.send);
  t.is(state.told.at(-2)?.type, 'program', 'the program of the empty set comes first');
  t.like(state.locals().at(-1), { services: [], policy: { unknown: [], pending: false } });
  await state.change('addresses', [serviceRow]);
  t.like(state.locals().at(-1), { services: [{ name: 'web' }] });
  const count = state.told.length;
  await state.change('addresses', [
    workloadRow({ uid: 'other', name: 'x', addresses: ['10.9.9.9'] }),
  ]);
  t.deepEqual(
    state.told.slice(count).map((message) => message.type),
    ['invalidate'],
    'what concerns others is no news',
  );
  await state.change('addresses', [{ key: workloadFixture().uid, value: null }]);
  t.is(state.locals().at(-1)?.workload, null);
  state.engine.request(0, { type: 'unwatch', uid: pod.uid }, state.send);
});

test('an unknown pod is told when its workload appears', async (t) => {
  const state = setUp();
  for (const table of ['addresses', 'authorizations', 'rejections'] as const) {
    await state.copy(table);
  }
  state.engine.request(0, { type: 'watch', pod }, state.send);
  t.is(state.locals().at(-1)?.workload, null);
  await state.change('addresses', [workloadRow({ node: 'node-2', uid: 'elsewhere' })]);
  t.is(state.locals().at(-1)?.workload, null);
  await state.change('addresses', [workloadRow()]);
  t.is(state.locals().at(-1)?.workload?.uid, workloadFixture().uid);
});

test('the program of a new set comes from the evaluator when it is in time', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow()]);
  await state.copy('authorizations');
  await state.copy('rejections');
  state.engine.request(0, { type: 'watch', pod }, state.send);
  const before = state.locals().length;
  await state.change('authorizations', [policyRow({ name: 'deny', action: 'DENY' })]);
  t.is(state.locals().length, before, 'the thread keeps what it has while the program is awaited');
  const policy = authorizationFixture({ name: 'deny', action: 'DENY' });
  const setId = setIdOf(policy);
  const program = compileProgram(setId, [{ key: 'demo/deny', policy }]);
  await state.change('programs', [{ key: setId, value: Buffer.from(JSON.stringify(program)) }]);
  t.is(state.locals().at(-1)?.policy.setId, setId);
  t.deepEqual(
    state.told.slice(-3).map((message) => message.type),
    ['program', 'local', 'program.drop'],
  );
  t.like(state.engine.stats(), { programsReceived: 1, programsCompiled: 1 });
});

test('without the evaluator a DENY is enforced after a bounded wait', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow()]);
  await state.copy('authorizations');
  await state.copy('rejections');
  state.engine.request(0, { type: 'watch', pod }, state.send);
  const before = state.locals().length;
  await state.change('authorizations', [policyRow({ name: 'deny', action: 'DENY' })]);
  await state.clock.advance(PROGRAM_WAIT_MS - 1);
  t.is(state.locals().length, before);
  await state.clock.advance(1);
  const program = state.told.findLast((message) => message.type === 'program');
  t.deepEqual(
    program?.program.deny.map((policy) => policy.key),
    ['demo/deny'],
  );
  t.is(state.locals().at(-1)?.policy.setId, program?.program.setId);
});

for (const [what, row] of [
  ['that is no JSON', '{"version":1'],
  ['of another version', JSON.stringify({ ...compileProgram('SET', []), version: 2 })],
  ['of another set', JSON.stringify(compileProgram('other', []))],
  ['with a condition nobody knows', '{"version":1,"setId":"SET","deny":[{"key":"a/b","when":[]}]}'],
] as const) {
  test(`a program ${what} is compiled here instead, and is read once`, async (t) => {
    const state = setUp();
    await state.copy('addresses', [workloadRow()]);
    await state.copy('authorizations', [policyRow({ name: 'deny', action: 'DENY' })]);
    const setId = setIdOf(authorizationFixture({ name: 'deny', action: 'DENY' }));
    await state.copy('programs', [{ key: setId, value: Buffer.from(row.replace('SET', setId)) }]);
    await state.copy('rejections');
    for (const thread of [0, 1]) {
      if (thread === 1) state.engine.connect(thread, state.send);
      state.engine.request(thread, { type: 'watch', pod }, state.send);
      await state.clock.advance(1_000);
    }
    const programs = state.told.flatMap((message) =>
      message.type === 'program' ? [message.program] : [],
    );
    t.deepEqual(
      programs.map((program) => [program.setId, program.deny.length]),
      [
        [setId, 1],
        [setId, 1],
      ],
    );
    t.is(state.engine.stats().programsCompiled, 1);
    t.is(state.engine.stats().programsReceived, 0);
    t.is(state.lines.filter(({ message }) => message === 'program.unreadable').length, 1);
  });
}

test('a listed policy nobody knows is pending for five seconds and then stays unknown', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow({ authorizationPolicies: ['demo/missing'] })]);
  await state.copy('authorizations');
  await state.copy('rejections');
  state.engine.request(0, { type: 'watch', pod }, state.send);
  t.like(state.locals().at(-1)?.policy, { unknown: ['demo/missing'], pending: true });
  await state.clock.advance(5_000);
  t.like(state.locals().at(-1)?.policy, { unknown: ['demo/missing'], pending: false });
  await state.change('authorizations', [
    policyRow({ name: 'missing', scope: 'WORKLOAD_SELECTOR' }),
  ]);
  await state.clock.advance(1_000);
  t.like(state.locals().at(-1)?.policy, { unknown: [], pending: false });
});

test('a full copy removes what it does not hold, and only when it is complete', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow(), serviceRow]);
  await state.copy('authorizations', [policyRow()]);
  await state.copy('rejections');
  const keys = [{ kind: 'hostname' as const, hostname: serviceFixture().hostname }];
  await state.engine.feed('addresses', { kind: 'reset' });
  await state.engine.feed('addresses', { kind: 'entries', rows: packRows([workloadRow()]) });
  t.like(state.lookup(keys), { answers: [{ services: [{ name: 'web' }] }] });
  await state.engine.feed('addresses', { kind: 'synced' });
  t.like(state.lookup(keys), { answers: [{ services: [] }] });
});

/** Summarizes the endpoint messages to a thread: the number of endpoints of each, and whether it replaces all. */
const pages = (told: readonly StateResponse[]) =>
  told.flatMap((message) =>
    message.type === 'endpoints' ? [[message.endpoints.length, message.anew !== null]] : [],
  );

const MANY = 5_000;
const endpointRow = (index: number, fields: Partial<Workload> = {}): Row =>
  workloadRow({
    uid: `Kubernetes//Pod/demo/web-${index}`,
    name: `web-${index}`,
    addresses: [`10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`],
    services: { [key]: { 80: 8080 } },
    ...fields,
  });

/** Makes a state with a service of many endpoints, and a thread that has asked for it. */
async function bigService() {
  const state = setUp();
  await state.copy('authorizations');
  await state.copy('rejections');
  const rows = Array.from({ length: MANY }, (_, index) => endpointRow(index));
  await state.copy('addresses', [serviceRow, ...rows]);
  state.told.length = 0;
  const keys = [{ kind: 'hostname' as const, hostname: serviceFixture().hostname }];
  let last = 0;
  /** The epoch of the last message. */
  const epoch = (): number => {
    for (const message of state.told) if (message.type === 'endpoints') last = message.epoch;
    return last;
  };
  const taken = (of = epoch()) =>
    state.engine.request(0, { type: 'endpoints.taken', service: key, epoch: of }, state.send);
  const release = (of = epoch()) =>
    state.engine.request(0, { type: 'endpoints.release', service: key, epoch: of }, state.send);
  const ask = () => state.engine.request(0, { type: 'lookup', id: 1, keys }, state.send);
  const settle = () => {
    for (let left = MANY; left > 0; left -= ENDPOINTS_PER_MESSAGE) taken();
  };
  return { ...state, ask, taken, release, epoch, settle };
}

const zonal = serviceFixture({
  loadBalancing: { routingPreference: ['ZONE'], mode: 'FAILOVER', healthPolicy: 'ALLOW_ALL' },
});
const zonalRow: Row = { key, value: encodeService(zonal) };

test('many endpoints come in few messages, each after the last one was taken, and the answer after all', async (t) => {
  const { told, ask, taken } = await bigService();
  ask();
  t.deepEqual(pages(told), [[ENDPOINTS_PER_MESSAGE, true]]);
  for (let message = 1; !told.some(({ type }) => type === 'answer'); message += 1) {
    t.is(pages(told).length, message);
    taken();
  }
  t.is(
    pages(told).reduce((sum, [count]) => sum + Number(count), 0),
    MANY,
  );
  t.is(pages(told).length, Math.ceil(MANY / ENDPOINTS_PER_MESSAGE));
  t.true(pages(told).length <= 20);
  t.is(told.at(-1)?.type, 'answer');
  // A second question about the service does not repeat the endpoints.
  told.length = 0;
  ask();
  t.deepEqual(
    told.map(({ type }) => type),
    ['answer'],
  );
});

test('a change of an endpoint costs a thread that endpoint, and spoils no answer about its service', async (t) => {
  const { engine, told, change, ask, taken, release } = await bigService();
  ask();
  while (!told.some(({ type }) => type === 'answer')) taken();
  taken();
  const others: StateResponse[] = [];
  engine.connect(1, (message) => void others.push(message));
  told.length = 0;
  await change('addresses', [endpointRow(7, { status: 'UNHEALTHY' })]);
  t.deepEqual(told.map(({ type }) => type).toSorted(), ['endpoints', 'invalidate']);
  t.deepEqual(pages(told), [[1, false]]);
  const spoilt = told.flatMap((message) =>
    message.type === 'invalidate' ? (message.ids ?? []) : [],
  );
  t.deepEqual(spoilt.toSorted(), ['address:/10.0.0.7', 'uid:Kubernetes//Pod/demo/web-7']);
  t.deepEqual(
    others.map(({ type }) => type),
    ['invalidate'],
    'who does not have the service is told nothing',
  );
  // No message follows until this one is taken; then all later changes come at once, in their current form.
  told.length = 0;
  for (const status of ['HEALTHY', 'UNHEALTHY', 'HEALTHY'] as const) {
    await change('addresses', [endpointRow(7, { status }), endpointRow(8, { status })]);
  }
  t.deepEqual(pages(told), []);
  taken();
  t.deepEqual(pages(told), [[2, false]]);
  taken();
  release();
  told.length = 0;
  await change('addresses', [endpointRow(7, { status: 'UNHEALTHY' })]);
  t.deepEqual(pages(told), []);
});

test('a thread that is gone, or forgot a service, is not waited for', async (t) => {
  const { engine, told, ask, change } = await bigService();
  ask();
  engine.disconnect(0);
  told.length = 0;
  await change('addresses', [endpointRow(7, { status: 'UNHEALTHY' })]);
  t.deepEqual(told, []);
});

test('a service that is balanced otherwise, or comes back, is told of anew', async (t) => {
  const { told, change, ask, settle } = await bigService();
  ask();
  settle();
  await change('addresses', [zonalRow]);
  told.length = 0;
  ask();
  t.deepEqual(pages(told), [[ENDPOINTS_PER_MESSAGE, true]]);
  settle();
  await change('addresses', [{ key, value: null }]);
  await change('addresses', [endpointRow(7, { capacity: 2 })]);
  await change('addresses', [serviceRow]);
  told.length = 0;
  ask();
  t.deepEqual(pages(told), [[ENDPOINTS_PER_MESSAGE, true]]);
});

test('a service that is balanced otherwise for a while loses no endpoint', async (t) => {
  const { told, change, ask, settle } = await bigService();
  const healthy: Row = {
    key,
    value: encodeService(
      serviceFixture({
        loadBalancing: { routingPreference: [], mode: 'FAILOVER', healthPolicy: 'ONLY_HEALTHY' },
      }),
    ),
  };
  await change('addresses', [zonalRow]);
  ask();
  settle();
  settle();
  told.length = 0;
  await change('addresses', [healthy]);
  // The service as it is now does not count it as an endpoint.
  await change('addresses', [endpointRow(7, { status: 'UNHEALTHY' })]);
  settle();
  await change('addresses', [zonalRow]);
  ask();
  settle();
  const has = new Map<string, boolean>();
  for (const message of told) {
    if (message.type !== 'endpoints') continue;
    if (message.anew !== null) has.clear();
    for (const [uid, endpoint] of message.endpoints) has.set(uid, endpoint !== null);
  }
  t.true(has.get('Kubernetes//Pod/demo/web-7'));
  t.is(told.at(-1)?.type, 'answer');
});

for (const [what, rows] of [
  ['is balanced otherwise', [[zonalRow]]],
  ['comes back', [[{ key, value: null }], [endpointRow(7, { capacity: 2 })], [serviceRow]]],
] as const) {
  test(`endpoints of a service that ${what} stay fresh, though the thread gave up the old ones meanwhile`, async (t) => {
    const { told, change, ask, taken, release, epoch, settle } = await bigService();
    ask();
    settle();
    const old = epoch();
    for (const step of rows) await change('addresses', step);
    told.length = 0;
    ask();
    release(old);
    t.deepEqual(pages(told), [[ENDPOINTS_PER_MESSAGE, true]]);
    settle();
    told.length = 0;
    await change('addresses', [endpointRow(8, { status: 'UNHEALTHY' })]);
    t.deepEqual(pages(told), [[1, false]]);
    taken();
    release();
    told.length = 0;
    await change('addresses', [endpointRow(8, { status: 'HEALTHY' })]);
    t.deepEqual(pages(told), [], 'it gave up those as well');
  });
}

test('a thread that took an old message of a service is not ready for the second new one', async (t) => {
  const { told, change, ask, taken, release, epoch, settle } = await bigService();
  ask();
  settle();
  await change('addresses', [endpointRow(7, { capacity: 2 })]);
  // In one turn the thread gets this message, gives up the service and asks about it; then it says that it took the message.
  const old = epoch();
  release();
  told.length = 0;
  ask();
  t.deepEqual(pages(told), [[ENDPOINTS_PER_MESSAGE, true]]);
  taken(old);
  t.is(pages(told).length, 1);
  taken();
  t.is(pages(told).length, 2);
});

test('a row that cannot be read leaves the last good one in force and is counted', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow()]);
  await state.copy('authorizations');
  await state.copy('rejections');
  await state.change('addresses', [{ key: workloadFixture().uid, value: Buffer.from([0xff]) }]);
  t.like(state.lookup([{ kind: 'uid', uid: workloadFixture().uid }]), {
    answers: [{ workloads: [{ name: 'web-1' }] }],
  });
  t.like(state.engine.stats(), { unreadableRows: 1, workloads: 1, services: 0 });
});

test("identities of this node's mesh workloads are told when they change", async (t) => {
  const state = setUp();
  await state.copy('addresses', [
    workloadRow(),
    workloadRow({ uid: 'two', name: 'web-2', addresses: ['10.0.0.2'] }),
    workloadRow({ uid: 'far', node: 'node-2', serviceAccount: 'far', addresses: [] }),
    workloadRow({ uid: 'plain', tunnelProtocol: 'NONE', serviceAccount: 'plain', addresses: [] }),
  ]);
  t.deepEqual(state.identities, [['spiffe://cluster.local/ns/demo/sa/web']]);
  await state.change('addresses', [{ key: 'two', value: null }]);
  t.is(state.identities.length, 1);
  await state.change('addresses', [{ key: workloadFixture().uid, value: null }]);
  t.deepEqual(state.identities.at(-1), []);
});

test('a dump holds every object', async (t) => {
  const state = setUp();
  await state.copy('addresses', [workloadRow({ services: { [key]: { 80: 8080 } } }), serviceRow]);
  await state.copy('authorizations', [policyRow()]);
  const read = async (section: 'workloads' | 'services' | 'policies') => {
    const objects: unknown[] = [];
    for await (const text of state.engine.dump(section)) {
      objects.push(...(JSON.parse(`[${text}]`) as unknown[]));
    }
    return objects;
  };
  t.like(await read('workloads'), [{ name: 'web-1', protocol: 'HBONE', status: 'Healthy' }]);
  t.like(await read('services'), [
    { vips: ['/10.96.0.10'], endpoints: { [workloadFixture().uid]: { port: { 80: 8080 } } } },
  ]);
  t.like(await read('policies'), [{ name: 'policy', scope: 'Namespace', action: 'Allow' }]);
});

/** Returns the id of the policy's set, which is the same in every process. */
function setIdOf(policy: ReturnType<typeof authorizationFixture>): string {
  const store = new PolicyStore(decodeAuthorization, { unknownReference: 'deny' });
  store.apply(`${policy.namespace}/${policy.name}`, encodeAuthorization(policy));
  return store.setFor({ namespace: 'demo', authorizationPolicies: [] }).setId;
}
