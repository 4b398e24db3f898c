import test from 'ava';
import { EndedStreams } from '../../../../lib/hbone/session/ended-streams.ts';
import { MAX_REMEMBERED_STREAMS } from '../../../../lib/hbone/session/limits.ts';

test('remembers how streams ended, the last word where there is more than one', (t) => {
  const ended = new EndedStreams();
  t.is(ended.get(1), undefined);
  ended.add(1, 'done');
  ended.add(3, 'reset-by-peer');
  t.is(ended.get(1), 'done');
  ended.add(3, 'reset-by-us');
  t.is(ended.get(3), 'reset-by-us');
  t.is(ended.get(5), undefined);
});

test('forgets the oldest, and tells old words from new ones when it begins anew', (t) => {
  const ended = new EndedStreams();
  ended.add(1, 'reset-by-peer');
  for (let index = 1; index < MAX_REMEMBERED_STREAMS; index += 1) ended.add(2 * index + 1, 'done');
  t.is(ended.get(1), 'reset-by-peer');
  t.is(ended.get(3), 'done');
  // This replaces the oldest entry, which is its own.
  ended.add(1, 'reset-by-us');
  t.is(ended.get(1), 'reset-by-us');
  t.is(ended.get(3), 'done');
  ended.add(2 * MAX_REMEMBERED_STREAMS + 1, 'done');
  t.is(ended.get(3), undefined);
  ended.add(5, 'reset-by-us');
  t.is(ended.get(5), 'reset-by-us');
});
