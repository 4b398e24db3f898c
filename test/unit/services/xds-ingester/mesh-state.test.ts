import test from 'ava';
import { systemClock } from '../../../../lib/clock/clock.ts';
import type { Rejection } from '../../../../lib/policy/rejection.ts';
import { encodeWorkload } from '../../../../lib/xds/resources/address.ts';
import { ADDRESS_TYPE, AUTHORIZATION_TYPE } from '../../../../lib/xds/type-urls.ts';
import { LOCAL_TAG, MeshState } from '../../../../services/xds-ingester/mesh-state.ts';
import { ReplicaTable } from '../../../../services/xds-ingester/replica-table.ts';
import { keptLog } from '../../../support/actor-context.ts';
import { workloadFixture } from '../../../support/model-fixtures.ts';

const row = (text: string, tag = ''): { value: Uint8Array; tag: string } => ({
  value: Buffer.from(text),
  tag,
});

const NOTHING_HELD = { holdMs: 0, log: keptLog('ingester').log };

const bytesOf = (uid: string): Uint8Array => encodeWorkload(workloadFixture({ uid }));

test('the local file wins over the control plane, and its rows are no versions to resume from', async (t) => {
  const local = { type: ADDRESS_TYPE, name: 'uid-1', bytes: bytesOf('uid-1') } as const;
  const state = new MeshState(systemClock, [local], () => undefined, NOTHING_HELD);
  const { addresses } = state.tables;
  await state.apply(ADDRESS_TYPE, {
    resources: [
      { name: 'uid-1', version: '9', bytes: bytesOf('other') },
      { name: 'uid-2', version: '9', bytes: bytesOf('uid-2') },
    ],
    removed: [],
    initial: true,
    whole: true,
  });
  t.is(addresses.get('uid-1')?.tag, LOCAL_TAG);
  t.deepEqual([...state.versions(ADDRESS_TYPE)], [['uid-2', '9']]);
  await state.apply(ADDRESS_TYPE, {
    resources: [],
    removed: ['uid-1', 'uid-2'],
    initial: true,
    whole: true,
  });
  t.deepEqual(
    [...addresses.entries()].map(([key]) => key),
    ['uid-1'],
  );
});

test('rows of an earlier local file go when Redis is taken over', (t) => {
  const local = { type: ADDRESS_TYPE, name: 'new', bytes: bytesOf('new') } as const;
  const state = new MeshState(systemClock, [local], () => undefined, NOTHING_HELD);
  state.load({
    addresses: new Map([
      ['old', { value: bytesOf('old'), tag: LOCAL_TAG }],
      ['remote', { value: bytesOf('remote'), tag: '3' }],
    ]),
    authorizations: new Map(),
    rejections: new Map(),
    removals: new Map(),
    names: new Map(),
  });
  const { addresses } = state.tables;
  t.deepEqual([...addresses.entries()].map(([key]) => key).sort(), ['new', 'remote']);
  t.deepEqual(
    addresses.take(10).map(({ key, value }) => [key, value === null]),
    [
      ['old', true],
      ['new', false],
    ],
  );
  state.dropRemote();
  t.deepEqual(
    [...addresses.entries()].map(([key]) => key),
    ['new'],
  );
});

test('what does not fit a row is refused and does not stop the others', async (t) => {
  const state = new MeshState(systemClock, [], () => undefined, NOTHING_HELD);
  const failures = await state.apply(ADDRESS_TYPE, {
    resources: [
      { name: '', version: '1', bytes: bytesOf('a') },
      { name: 'n'.repeat(3_000), version: '1', bytes: bytesOf('a') },
      { name: 'big', version: '1', bytes: new Uint8Array(5 * 1024 * 1024) },
      { name: 'good', version: '1', bytes: bytesOf('good') },
    ],
    removed: ['never-there'],
    initial: true,
    whole: true,
  });
  t.is(failures.length, 3);
  t.deepEqual(
    [...state.tables.addresses.entries()].map(([key]) => key),
    ['good'],
  );
  t.deepEqual(
    [...state.tables.rejections.entries()].map(([key]) => key),
    [`${ADDRESS_TYPE}/big`],
  );
});

test('the rejection of a policy says how far it reaches, also where it is too big', async (t) => {
  const state = new MeshState(systemClock, [], () => undefined, NOTHING_HELD);
  const namespaced = [0x12, 1, 0x62, 0x18, 1]; // namespace "b", scope NAMESPACE
  const big = new Uint8Array(5 * 1024 * 1024);
  big.set(namespaced);
  await state.apply(AUTHORIZATION_TYPE, {
    resources: [
      { name: 'a/big', version: '1', bytes: big },
      { name: 'a/bad', version: '1', bytes: new Uint8Array([...namespaced, 0x20, 9]) },
      { name: 'a/none', version: '1', bytes: null },
    ],
    removed: [],
    initial: true,
    whole: true,
  });
  const reach = [...state.tables.rejections.entries()].map(([key, { value }]) => [
    key,
    (JSON.parse(Buffer.from(value).toString()) as Rejection).reach,
  ]);
  t.deepEqual(reach, [
    [`${AUTHORIZATION_TYPE}/a/big`, 'b'],
    [`${AUTHORIZATION_TYPE}/a/bad`, 'b'],
    [`${AUTHORIZATION_TYPE}/a/none`, null],
  ]);
});

test('a table keeps what is unwritten once per key, and finds the difference to what is stored', (t) => {
  const table = new ReplicaTable();
  table.set('a', row('1'));
  table.set('a', row('1'));
  table.set('b', row('1'));
  table.set('a', row('2'));
  t.false(table.delete('nothing'));
  t.is(table.dirty, 2);
  const taken = table.take(1);
  t.deepEqual(
    taken.map(({ key }) => key),
    ['b'],
    'in the order of the last change',
  );
  t.is(table.dirty, 2, 'what is being written is not written');
  table.restore();
  t.is(table.dirty, 2);
  t.is(table.takeAll().length, 2);
  t.is(table.dirty, 2);
  table.set('d', row('1'));
  table.restore();
  t.deepEqual(
    table.take(10).map(({ key }) => key),
    ['b', 'a', 'd'],
    'what was not written comes before what changed later',
  );
  table.written();
  t.is(table.dirty, 0);
  table.delete('d');
  table.diff(
    new Map([
      ['a', row('2')],
      ['b', row('1', 'other tag')],
      ['c', row('x')],
    ]),
  );
  t.deepEqual(Object.fromEntries(table.take(10).map(({ key, value }) => [key, value === null])), {
    b: false,
    c: true,
  });
});
