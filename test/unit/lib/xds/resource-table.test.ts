import test from 'ava';
import type { Steps } from '../../../../lib/async/shared-slices.ts';
import { BitSet } from '../../../../lib/collections/bit-set.ts';
import { ResourceTable } from '../../../../lib/xds/resource-table.ts';
import { plainResource } from '../../../support/plain-resource.ts';

const resource = (name: string, version = '1') => plainResource(name, version, Buffer.from(name));

function finish(steps: Steps): void {
  while (steps.next().done !== true);
}

test('a removed name keeps its slot until no client needs it', (t) => {
  const table = new ResourceTable();
  const slot = table.apply('a', resource('a'), null) ?? -1;
  const owed = new BitSet();
  owed.add(slot);
  table.apply('a', null, null);
  finish(table.reclaim([owed]));
  t.not(table.apply('b', resource('b'), null), slot);
  t.is(table.nameAt(slot), 'a');
  owed.clear();
  finish(table.reclaim([owed]));
  t.is(table.apply('c', resource('c'), null), slot);
  t.is(table.slotOf('a'), -1);
});

test('a name that comes back, or goes again, while slots are freed keeps its slot', (t) => {
  const table = new ResourceTable();
  const slots = ['back', 'again'].map((name) => table.apply(name, resource(name), null));
  table.apply('back', null, null);
  table.apply('again', null, null);
  const steps = table.reclaim([new BitSet()]);
  steps.next();
  table.apply('back', resource('back', '2'), null);
  table.apply('again', resource('again', '2'), null);
  table.apply('again', null, null);
  finish(steps);
  t.is(table.slotOf('back'), slots[0] ?? -1);
  t.is(table.apply('again', resource('again', '3'), null), slots[1] ?? -1);
});

test('the same version is no change', (t) => {
  const table = new ResourceTable();
  t.is(table.apply('a', null, null), null);
  t.is(table.apply('a', resource('a'), null), 0);
  t.is(table.apply('a', resource('a'), null), null);
  t.is(table.apply('a', resource('a', '2'), null), 0);
});
