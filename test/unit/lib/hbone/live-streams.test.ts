import test from 'ava';
import { LiveStreams } from '../../../../lib/hbone/engine-framing/stream-index.ts';

function ids(live: LiveStreams<{ readonly id: number }>): number[] {
  return [...live].map(({ id }) => id);
}

test('finds streams by id, whichever have ended', (t) => {
  const live = new LiveStreams<{ readonly id: number }>();
  t.is(live.get(1), undefined);
  for (const id of [1, 5, 7, 9, 21]) live.add({ id });
  t.deepEqual(
    [0, 1, 3, 5, 7, 9, 11, 21, 23].map((id) => live.get(id)?.id),
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
    live.delete(gone);
    t.is(live.get(gone), undefined);
    t.deepEqual(ids(live), left);
    t.is(live.size, left.length);
  }
});

test('streams may end while they are walked through', (t) => {
  const live = new LiveStreams<{ readonly id: number }>();
  for (const id of [1, 3, 5]) live.add({ id });
  const seen: number[] = [];
  for (const { id } of live) {
    seen.push(id);
    live.delete(id);
  }
  t.deepEqual(seen, [1, 3, 5]);
  live.add({ id: 7 });
  t.deepEqual(
    live.clear().map(({ id }) => id),
    [7],
  );
  t.is(live.size, 0);
});
