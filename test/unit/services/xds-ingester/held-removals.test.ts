import test from 'ava';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../../lib/xds/type-urls.ts';
import { encodeAuthorization } from '../../../../lib/xds/resources/authorization.ts';
import { encodeWorkload } from '../../../../lib/xds/resources/address.ts';
import { MeshState } from '../../../../services/xds-ingester/mesh-state.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { authorizationFixture, workloadFixture } from '../../../support/model-fixtures.ts';

const HOLD_MS = 60_000;

const uid = (index: number): string => `Kubernetes//Pod/demo/web-${index}`;
const uids = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, index) => uid(from + index));

function stateOf(count: number, clock = new FakeClock()): { state: MeshState; clock: FakeClock } {
  const { log } = keptLog('ingester');
  const state = new MeshState(clock, [], () => undefined, { holdMs: HOLD_MS, log });
  for (const name of uids(0, count)) {
    const value = encodeWorkload(workloadFixture({ uid: name }));
    state.tables.addresses.set(name, { value, tag: '1' });
  }
  return { state, clock };
}

const remove = (state: MeshState, removed: readonly string[], initial = false): Promise<unknown> =>
  state.apply(ADDRESS_TYPE, { resources: [], removed, initial, whole: true });

const rows = (state: MeshState, table: 'addresses' | 'removals'): Map<string, never> =>
  new Map(state.tables[table].entries()) as Map<string, never>;

test('few workloads, or a small share of them, are removed at once', async (t) => {
  const few = stateOf(60);
  await remove(few.state, uids(0, 49));
  t.is(few.state.tables.addresses.size, 11);
  const share = stateOf(1_000);
  await remove(share.state, uids(0, 300));
  t.is(share.state.tables.addresses.size, 700);
  t.is(share.state.held.size, 0);
});

test('more is held, with the services of the push, until the control plane stood by it for the time', async (t) => {
  const { state, clock } = stateOf(100);
  state.tables.addresses.set('demo/web.demo.svc', { value: new Uint8Array(), tag: '1' });
  await remove(state, [...uids(0, 50), 'demo/web.demo.svc']);
  t.is(state.tables.addresses.size, 101);
  t.is(state.held.size, 51);
  await remove(state, [uid(99)]);
  t.is(state.tables.addresses.size, 100, 'others go on');
  await clock.advance(HOLD_MS - 1);
  t.is(state.applyHeld(), 0);
  await clock.advance(1);
  t.is(state.applyHeld(), 51);
  t.is(state.tables.addresses.size, 49);
  t.is(state.held.size, 0);
});

test('services alone are no workloads, and names nobody has count for nothing', async (t) => {
  const { state } = stateOf(60);
  const services = Array.from({ length: 100 }, (_, index) => `demo/s${index}.demo.svc`);
  for (const name of services)
    state.tables.addresses.set(name, { value: Buffer.alloc(0), tag: '' });
  await remove(state, [...services, ...uids(1_000, 1_100)]);
  t.is(state.tables.addresses.size, 60);
});

test('an address that is sent again, or that the next stream does not remove, is held no longer', async (t) => {
  const { state, clock } = stateOf(100);
  await remove(state, uids(0, 60));
  const bytes = encodeWorkload(workloadFixture({ uid: uid(0) }));
  await state.apply(ADDRESS_TYPE, {
    resources: [{ name: uid(0), version: '2', bytes }],
    removed: [],
    initial: false,
    whole: true,
  });
  t.is(state.held.size, 59);
  await clock.advance(30_000);
  await remove(state, uids(10, 80), true);
  t.is(state.held.size, 70);
  await clock.advance(30_000);
  t.is(state.applyHeld(), 50, 'those that both streams removed');
  await clock.advance(30_000);
  t.is(state.applyHeld(), 20);
  t.is(state.tables.addresses.size, 30);
});

test('a next stream that removes few has the last word', async (t) => {
  const { state } = stateOf(100);
  await remove(state, uids(0, 60));
  await remove(state, uids(0, 10), true);
  t.is(state.tables.addresses.size, 90);
  t.is(state.held.size, 0);
});

test('an operator accepts what he saw, not what came after', async (t) => {
  const { state, clock } = stateOf(400);
  await remove(state, uids(0, 150));
  const seen = clock.now();
  await clock.advance(1_000);
  await remove(state, uids(150, 300));
  t.is(state.applyHeld(seen), 150);
  t.is(state.held.size, 150);
});

test('policies are never held', async (t) => {
  const { state } = stateOf(0);
  const names = Array.from({ length: 100 }, (_, index) => `demo/p${index}`);
  const value = encodeAuthorization(authorizationFixture({}));
  for (const name of names) state.tables.authorizations.set(name, { value, tag: '1' });
  await state.apply(AUTHORIZATION_TYPE, {
    resources: [],
    removed: names,
    initial: true,
    whole: true,
  });
  t.is(state.tables.authorizations.size, 0);
});

test('a restart goes on with what is held since the same time', async (t) => {
  const first = stateOf(100);
  await remove(first.state, uids(0, 60));
  const { state, clock } = stateOf(0, first.clock);
  await clock.advance(59_000);
  state.load({
    addresses: rows(first.state, 'addresses'),
    authorizations: new Map(),
    rejections: new Map(),
    removals: rows(first.state, 'removals'),
    names: new Map(),
  });
  await remove(state, uids(0, 60), true);
  t.is(state.applyHeld(), 0);
  await clock.advance(1_000);
  t.is(state.applyHeld(), 60);
});

test('a standby that takes over follows what the leader held and what it removed', async (t) => {
  const leader = stateOf(200);
  await remove(leader.state, uids(0, 80));
  await leader.clock.advance(40_000);
  const standby = stateOf(200, leader.clock);
  await remove(standby.state, uids(0, 80));
  standby.state.takeOver('removals', rows(leader.state, 'removals'));
  standby.state.takeOver('addresses', rows(leader.state, 'addresses'));
  await leader.clock.advance(20_000);
  t.is(standby.state.applyHeld(), 80, 'since the leader began to hold');

  const late = stateOf(200, leader.clock);
  await remove(late.state, uids(0, 80));
  t.is(leader.state.applyHeld(), 80);
  late.state.takeOver('removals', rows(leader.state, 'removals'));
  late.state.takeOver('addresses', rows(leader.state, 'addresses'));
  t.is(late.state.tables.addresses.size, 120);
  t.is(late.state.held.size, 0);
});

test('a standby that knows only half of the mesh does not remove the other half', (t) => {
  const leader = stateOf(200);
  const standby = stateOf(100, leader.clock);
  standby.state.takeOver('removals', new Map());
  standby.state.takeOver('addresses', rows(leader.state, 'addresses'));
  t.is(standby.state.tables.addresses.size, 200);
  t.is(standby.state.held.size, 100);
  const few = stateOf(190, leader.clock);
  few.state.takeOver('removals', new Map());
  few.state.takeOver('addresses', rows(leader.state, 'addresses'));
  t.is(few.state.tables.addresses.size, 190);
});
