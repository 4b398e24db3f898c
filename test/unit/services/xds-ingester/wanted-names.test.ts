import test from 'ava';
import { DEMAND_NAMES_MAX } from '../../../../services/xds-ingester/limits.ts';
import { WantedNames } from '../../../../services/xds-ingester/on-demand/wanted-names.ts';

const ROOM = 1_000_000;

function rig(max = 3) {
  let nowMs = 0;
  const names = new WantedNames(
    { max, idleMs: 600, inUseMs: 200, recheckMs: 10, rechecks: 2 },
    () => nowMs,
  );
  const evicted: string[] = [];
  return {
    names,
    evicted,
    at: (ms: number) => (nowMs = ms),
    want: (name: string) =>
      names.want(name, (oldest) => {
        evicted.push(oldest);
        names.drop(oldest);
      }),
    ask: () => names.next(ROOM),
  };
}

test('a name is asked for once, whoever wants it', (t) => {
  const { names, want, ask } = rig();
  t.is(want('/10.0.0.1'), 'new');
  t.is(want('/10.0.0.1'), 'known');
  t.deepEqual(ask(), { subscribe: ['/10.0.0.1'], unsubscribe: [] });
  t.is(ask(), null);
  t.true(names.waits('/10.0.0.1'));
  t.true(names.answer('/10.0.0.1'));
  t.false(names.answer('/10.0.0.1'), 'told before');
  t.false(names.answer('/10.0.0.2'), 'nobody wants it');
  t.is(names.unanswered, 0);
});

test('beyond the limit the least recently wanted name makes room, unless it is in use', (t) => {
  const { at, ask, evicted, names, want } = rig();
  for (const name of ['a/1', 'a/2', 'a/3']) want(name);
  ask();
  at(100);
  t.is(want('a/4'), 'refused');
  want('a/1');
  at(200);
  t.is(want('a/4'), 'new');
  t.deepEqual(evicted, ['a/2']);
  t.deepEqual([...names.names()], ['a/3', 'a/1', 'a/4']);
  t.deepEqual(ask(), { subscribe: [], unsubscribe: ['a/2'] }, 'alone, before what comes');
  t.deepEqual(ask(), { subscribe: ['a/4'], unsubscribe: [] });
});

test('an idle name is given up', (t) => {
  const { at, names, want } = rig();
  want('a/1');
  at(300);
  want('a/2');
  at(600);
  t.deepEqual(names.idle(), ['a/1']);
});

test('a name whose resource has gone is asked for anew; names without one are, at a pace', (t) => {
  const { at, ask, names, want } = rig(10);
  want('a/1');
  ask();
  names.answer('a/1');
  t.false(names.note('a/1', true));
  t.true(names.note('a/1', false));
  t.true(names.waits('a/1'));
  t.deepEqual(ask(), { subscribe: [], unsubscribe: ['a/1'] }, 'istiod answers only new names');
  t.deepEqual(ask()?.subscribe, ['a/1']);
  for (const name of ['b/1', 'b/2', 'b/3']) want(name);
  ask();
  names.note('b/1', true);
  at(9);
  names.recheck();
  t.is(ask(), null);
  at(10);
  names.recheck();
  t.deepEqual(ask()?.unsubscribe, ['a/1', 'b/2'], 'two at a time');
  t.deepEqual(ask()?.subscribe, ['a/1', 'b/2']);
});

test('a new stream is asked for all names and for what is held, in bounded requests', (t) => {
  const { names, want } = rig(5_000);
  for (let index = 0; index < 1_500; index += 1) want(`a/${index}`);
  while (names.next(ROOM) !== null);
  names.drop('a/0');
  names.reopened(['held']);
  t.is(names.next(ROOM)?.subscribe.length, DEMAND_NAMES_MAX);
  const rest = names.next(ROOM);
  t.is(rest?.subscribe.length, 1_500 - DEMAND_NAMES_MAX);
  t.is(rest?.subscribe.at(-1), 'held');
  t.deepEqual(rest?.unsubscribe, [], 'the stream never had it');
  names.reopened([]);
  const small = names.next(20);
  t.true((small?.subscribe.length ?? 0) > 0 && (small?.subscribe.length ?? 0) <= 3);
});
