import { MessageChannel } from 'node:worker_threads';
import test from 'ava';
import type { ExecutionContext } from 'ava';
import type { Endpoint } from '../../../../lib/state/model.ts';
import { serviceKey } from '../../../../lib/state/model.ts';
import type { LookupKey } from '../../../../lib/state/view.ts';
import { lookupId } from '../../../../lib/state/view.ts';
import { KEPT_SERVICES, MAX_CACHED_ANSWERS } from '../../../../workers/listener/limits.ts';
import type { StateRequest, StateResponse } from '../../../../workers/listener/protocol/state.ts';
import { StateClient } from '../../../../workers/listener/state-client.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { service } from '../../../support/mesh-kit.ts';
import { until } from '../../../support/until.ts';
import { workload } from '../../../support/workloads.ts';

const key: LookupKey = { kind: 'address', network: '', ip: '10.0.0.1' };
const pod = { uid: 'u', name: 'web', namespace: 'demo', serviceAccount: 'web' };

function client(
  t: ExecutionContext,
  maxEndpoints?: number,
): {
  state: StateClient;
  asked: StateRequest[];
  say: (message: StateResponse) => void;
  clock: FakeClock;
} {
  const { port1, port2 } = new MessageChannel();
  t.teardown(() => port1.close());
  const asked: StateRequest[] = [];
  port1.on('message', (message: StateRequest) => asked.push(message));
  // A stopped clock, so that no wait expires on a busy machine.
  const clock = new FakeClock();
  return {
    clock,
    state: new StateClient(port2, clock, maxEndpoints === undefined ? {} : { maxEndpoints }),
    asked,
    say: (message) => port1.postMessage(message),
  };
}

test('a key is asked for once, however many want it, and then known', async (t) => {
  const { state, asked, say } = client(t);
  t.is(state.get(key), undefined);
  const both = Promise.all([state.fetch([key]), state.fetch([key])]);
  await until(() => asked.length > 0, { what: 'the question' });
  say({ type: 'answer', id: 1, answers: [{ workloads: [workload()], services: [] }] });
  await both;
  t.is(asked.length, 1);
  t.is(state.get(key)?.workloads.length, 1);
});

test('cannot tell yet is asked again, never taken for not known', async (t) => {
  const { state, asked, say, clock } = client(t);
  const fetched = state.fetch([key]);
  await until(() => asked.length === 1, { what: 'the question' });
  say({ type: 'answer', id: 1, answers: [null] });
  const again = async (): Promise<boolean> => {
    await clock.advance(1);
    return asked.length === 2;
  };
  await until(again, { what: 'the second question' });
  t.is(state.get(key), undefined);
  say({ type: 'answer', id: 2, answers: [{ workloads: [], services: [] }] });
  await fetched;
  t.deepEqual(state.get(key), { workloads: [], services: [] });
});

test('an invalidated answer is asked for anew, all of them when it says so', async (t) => {
  const { state, asked, say } = client(t);
  for (const [id, ids] of [
    [1, [lookupId(key)]],
    [2, null],
  ] as const) {
    const fetched = state.fetch([key]);
    await until(() => asked.length === id, { what: 'the question' });
    say({ type: 'answer', id, answers: [{ workloads: [], services: [] }] });
    await fetched;
    say({ type: 'invalidate', ids });
    await until(() => state.get(key) === undefined, { what: 'the answer to go' });
  }
  t.is(state.cached, 0);
});

test('names nobody has push out no answer that routes are made of', async (t) => {
  const { state, asked, say } = client(t);
  const empty = { workloads: [], services: [] };
  const answer = async (keys: readonly LookupKey[], id: number): Promise<void> => {
    const fetched = state.fetch(keys);
    await until(() => asked.length === id, { what: 'the question' });
    say({ type: 'answer', id, answers: keys.map(() => empty) });
    await fetched;
  };
  const names = Array.from({ length: MAX_CACHED_ANSWERS }, (_, index): LookupKey => ({
    kind: 'hostname',
    hostname: `n${index}.example`,
  }));
  await answer([key], 1);
  await answer(names, 2);
  await answer([{ kind: 'hostname', hostname: 'one-more.example' }], 3);
  t.is(state.cached, 1 + MAX_CACHED_ANSWERS);
  t.deepEqual(state.get(key), empty);
  t.is(state.get({ kind: 'hostname', hostname: 'n0.example' }), undefined);
  say({ type: 'invalidate', ids: ['hostname:one-more.example'] });
  await until(() => state.cached === MAX_CACHED_ANSWERS, { what: 'the name to go' });
  say({ type: 'invalidate', ids: null });
  await until(() => state.cached === 0, { what: 'all to go' });
});

test('the cache is bounded, the least recently used answer goes first', async (t) => {
  const { state, asked, say } = client(t);
  const keys = Array.from({ length: MAX_CACHED_ANSWERS }, (_, index): LookupKey => ({
    kind: 'uid',
    uid: `w${index}`,
  }));
  const fill = state.fetch(keys);
  await until(() => asked.length === 1, { what: 'the question' });
  const empty = { workloads: [], services: [] };
  say({ type: 'answer', id: 1, answers: keys.map(() => empty) });
  await fill;
  t.truthy(state.get({ kind: 'uid', uid: 'w0' }));
  const one = state.fetch([key]);
  await until(() => asked.length === 2, { what: 'the second question' });
  say({ type: 'answer', id: 2, answers: [empty] });
  await one;
  t.is(state.cached, MAX_CACHED_ANSWERS);
  t.truthy(state.get({ kind: 'uid', uid: 'w0' }));
  t.is(state.get({ kind: 'uid', uid: 'w1' }), undefined);
});

test('a local pod is waited for and told of on every change', async (t) => {
  const { state, say } = client(t);
  state.watch(pod);
  const policy = { setId: 's', unknown: [], pending: false, denyAll: null };
  const known = state.knownLocal('u');
  say({ type: 'local', uid: 'u', pod: { workload: null, services: [], policy } });
  say({ type: 'local', uid: 'u', pod: { workload: workload(), services: [], policy } });
  t.is((await known).workload.name, 'web-1');
  let told = 0;
  const stop = state.onLocal('u', () => {
    told += 1;
  });
  say({ type: 'local', uid: 'u', pod: { workload: null, services: [], policy } });
  await until(() => told === 1, { what: 'the change' });
  stop();
  say({ type: 'local', uid: 'other', pod: { workload: null, services: [], policy } });
  t.is(state.local('other'), null);
});

test('the end of a watch leaves a later one of the same pod alone', async (t) => {
  const { state, asked, say } = client(t);
  const policy = { setId: 's', unknown: [], pending: false, denyAll: null };
  const endFirst = state.watch(pod);
  const endSecond = state.watch(pod);
  endFirst();
  say({ type: 'local', uid: 'u', pod: { workload: workload(), services: [], policy } });
  await until(() => state.local('u'), { what: 'word of the pod' });
  endFirst();
  t.not(state.local('u'), null);
  endSecond();
  endSecond();
  t.is(state.local('u'), null);
  await until(() => asked.some(({ type }) => type === 'unwatch'), { what: 'the end of the watch' });
  t.deepEqual(
    asked.map(({ type }) => type),
    ['watch', 'watch', 'unwatch'],
  );
});

test('a program is kept until it is dropped', async (t) => {
  const { state, say } = client(t);
  const program = {
    version: 1,
    setId: 's',
    dryRunDeny: [],
    deny: [],
    dryRunAllow: [],
    allow: [],
  } as const;
  say({ type: 'program', program });
  await until(() => state.program('s'), { what: 'the program' });
  say({ type: 'program.drop', setId: 's' });
  await until(() => state.program('s') === undefined, { what: 'the drop' });
  t.pass();
});

test('endpoints that are used stay, however long ago they were asked for', async (t) => {
  const { state, asked, say } = client(t, KEPT_SERVICES);
  const keys = Array.from({ length: KEPT_SERVICES + 1 }, (_, index) => ({
    kind: 'hostname' as const,
    hostname: `s${index}.demo`,
  }));
  for (const [index, { hostname }] of keys.entries()) {
    const web = service({ hostname });
    // Connections that are made meanwhile use the first.
    if (index > 0) t.truthy(state.get({ kind: 'hostname', hostname: 's0.demo' }));
    const fetched = state.fetch([{ kind: 'hostname', hostname }]);
    await until(() => asked.some((one) => one.type === 'lookup' && one.id === index + 1), {
      what: 'the question',
    });
    const anew = { balancing: null };
    say({ type: 'endpoints', service: serviceKey(web), epoch: index, anew, endpoints: [] });
    say({ type: 'answer', id: index + 1, answers: [{ workloads: [], services: [web] }] });
    await fetched;
  }
  const known = keys.filter((one) => state.get(one) !== undefined);
  t.deepEqual(
    known.map(({ hostname }) => hostname),
    keys.map(({ hostname }) => hostname).filter((hostname) => hostname !== 's1.demo'),
  );
});

test('an answer has the endpoints that came before it, and follows them without another question', async (t) => {
  const { state, asked, say } = client(t);
  const web = service({ hostname: 'web.demo' });
  const told = (uid: string, endpoint: Endpoint | null, anew = false) =>
    say({
      type: 'endpoints',
      service: 'demo/web.demo',
      epoch: 1,
      anew: anew ? { balancing: null } : null,
      endpoints: [[uid, endpoint]],
    });
  const fetched = state.fetch([key]);
  await until(() => asked.length === 1, { what: 'the question' });
  told('a', { workload: workload({ uid: 'a' }), ports: {} }, true);
  say({ type: 'answer', id: 1, answers: [{ workloads: [], services: [web] }] });
  await fetched;
  const uids = (): string[] =>
    [...(state.get(key)?.services[0]?.endpoints ?? [])].map((one) => one.workload.uid);
  t.deepEqual(uids(), ['a']);
  told('b', { workload: workload({ uid: 'b' }), ports: {} });
  told('a', null);
  await until(() => uids().join() === 'b', { what: 'the change' });
  t.is(state.heldEndpoints, 2);
  t.deepEqual(asked.filter(({ type }) => type === 'lookup').length, 1);
});

test('an answer whose endpoints are not held is asked for again', async (t) => {
  const { state, asked, say, clock } = client(t);
  const fetched = state.fetch([key]);
  await until(() => asked.length === 1, { what: 'the question' });
  const answers = [{ workloads: [], services: [service({ hostname: 'web.demo' })] }];
  say({ type: 'answer', id: 1, answers });
  const again = async (): Promise<boolean> => {
    await clock.advance(1);
    return asked.length === 2;
  };
  await until(again, { what: 'the second question' });
  t.is(state.get(key), undefined);
  const anew = { balancing: null };
  say({ type: 'endpoints', service: 'demo/web.demo', epoch: 1, anew, endpoints: [] });
  say({ type: 'answer', id: 2, answers });
  await fetched;
  t.is(state.get(key)?.services[0]?.endpoints.size, 0);
});
