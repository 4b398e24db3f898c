import test from 'ava';
import { ById } from '../../../../lib/collections/by-id.ts';

function ids(members: ById<{ readonly id: number }>): number[] {
  return [...members].map(({ id }) => id);
}

test('finds members by id, whichever have gone', (t) => {
  const members = new ById<{ readonly id: number }>();
  t.is(members.get(1), undefined);
  for (const id of [1, 5, 7, 9, 21]) members.add({ id });
  t.deepEqual(
    [0, 1, 3, 5, 7, 9, 11, 21, 23].map((id) => members.get(id)?.id),
    [undefined, 1, undefined, 5, 7, 9, undefined, 21, undefined],
  );
  for (const [gone, left] of [
    [7, [1, 5, 9, 21]],
    [8, [1, 5, 9, 21]],
    [21, [1, 5, 9]],
    [1, [5, 9]],
    [9, [5]],
    [5, []],
  ] as const) {
    t.is(members.delete(gone)?.id, gone === 8 ? undefined : gone);
    t.is(members.get(gone), undefined);
    t.deepEqual(ids(members), left);
    t.is(members.size, left.length);
  }
});

test('members may go while they are walked through', (t) => {
  const members = new ById<{ readonly id: number }>();
  for (const id of [1, 3, 5]) members.add({ id });
  const seen: number[] = [];
  for (const { id } of members) {
    seen.push(id);
    members.delete(id);
  }
  t.deepEqual(seen, [1, 3, 5]);
  members.add({ id: 7 });
  t.deepEqual(
    members.clear().map(({ id }) => id),
    [7],
  );
  t.is(members.size, 0);
});
