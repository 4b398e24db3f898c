import test from 'ava';
import { TableMirror } from '../../../../lib/bus/table-mirror.ts';

function setUp(sliceMs?: number) {
  const rows = new Map<string, string>();
  let steps = 0;
  const mirror: TableMirror = new TableMirror(
    {
      keys: () => rows.keys(),
      apply: (key, value) => {
        if (value === null) rows.delete(key);
        else rows.set(key, Buffer.from(value).toString());
      },
      applied: () => (steps += 1),
    },
    sliceMs,
  );
  return { mirror, rows, steps: () => steps };
}

const row = (key: string, text: string | null) => ({
  key,
  value: text === null ? null : Buffer.from(text),
});

test('rows of the first copy are held as they come, and synced says when all are there', async (t) => {
  const { mirror, rows, steps } = setUp();
  await mirror.onReset();
  await mirror.onEntries([row('a', '1'), row('b', '1')]);
  t.deepEqual([mirror.copying, mirror.synced, rows.size, steps()], [true, false, 2, 1]);
  await mirror.onSynced();
  t.deepEqual([mirror.copying, mirror.synced, rows.size, steps()], [false, true, 2, 2]);
  await mirror.onChanges([row('a', null), row('c', '1')]);
  t.deepEqual([...rows.keys()], ['b', 'c']);
  t.is(steps(), 3);
});

test('rows that a new copy lacks stay until it is complete, and go then', async (t) => {
  const { mirror, rows } = setUp();
  await mirror.onReset();
  await mirror.onEntries([row('kept', '1'), row('gone', '1')]);
  await mirror.onSynced();
  await mirror.onReset();
  t.true(mirror.synced, 'the last good copy counts while a new one is taken');
  await mirror.onEntries([row('kept', '2'), row('new', '1')]);
  t.deepEqual(
    [...rows],
    [
      ['kept', '2'],
      ['gone', '1'],
      ['new', '1'],
    ],
  );
  await mirror.onSynced();
  t.deepEqual([...rows.keys()], ['kept', 'new']);
});

test('a copy that starts again removes what only its given-up predecessor brought', async (t) => {
  const { mirror, rows } = setUp();
  await mirror.onReset();
  await mirror.onEntries([row('of-old-epoch', '1'), row('kept', '1')]);
  await mirror.onReset();
  await mirror.onEntries([row('kept', '1')]);
  t.true(rows.has('of-old-epoch'));
  await mirror.onSynced();
  t.deepEqual([...rows.keys()], ['kept']);
});

test('the event loop turns between slices of rows, also where rows are noted and removed', async (t) => {
  const { mirror, rows } = setUp(0);
  let turns = 0;
  let counting = true;
  const turned = (): void => {
    turns += 1;
    if (counting) setImmediate(turned);
  };
  setImmediate(turned);
  const took = async (work: Promise<void>): Promise<number> => {
    const before = turns;
    await work;
    return turns - before;
  };
  const many = Array.from({ length: 20 }, (_, index) => row(`row-${index}`, '1'));
  await mirror.onReset();
  const applied = await took(mirror.onEntries(many));
  await mirror.onSynced();
  const noted = await took(mirror.onReset());
  const removed = await took(mirror.onSynced());
  counting = false;
  t.true(Math.min(applied, noted, removed) >= 19, `${applied} ${noted} ${removed}`);
  t.is(rows.size, 0);
});
